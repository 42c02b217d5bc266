"""The ledger topic, as the port ``Ledger`` for one query.

The topic is compacted; its newest record with the query's id as the key is the query's head.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
import pyarrow as pa

from spark_eos.base import failpoints, system
from spark_eos.errors import EosError, stop
from spark_eos.kafka.codes import OK, TRANSACTION_GONE, name_of
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.producer.sender import Sender
from spark_eos.kafka.records.encode import Encoder, Rows, Sealed
from spark_eos.kafka.requests.end_txn import end_own_txn, endtxn_version
from spark_eos.kafka.requests.init_producer_id import init_producer_id
from spark_eos.ledger.errors import ledger_unauthorized
from spark_eos.ledger.group_offsets import GroupOffsets
from spark_eos.ledger.log import KafkaLog
from spark_eos.ledger.reader import LedgerReader
from spark_eos.protocol.extra import FeatureRecords
from spark_eos.protocol.head import Head, Offsets, Pair
from spark_eos.protocol.names import ledger_name
from spark_eos.protocol.ports import NotPublished

#: Seconds to wait for the ledger's leader. The transaction begins only when the leader accepts the first record.
WRITE_S = 60.0

#: The transaction timeout. A ledger transaction takes milliseconds; one that a crash leaves open hides later heads
#: until its timeout.
TRANSACTION_MS = 10_000


def ledger_partition(query: str, partitions: int) -> int:
    """Return the partition that holds a query's heads."""
    return zlib.crc32(query.encode()) % partitions


class KafkaLedger:
    """Reads and writes one query's head. ``group``: the consumer group to which a decision's offsets are published.

    Not for use by several threads at once.
    """

    def __init__(
        self, client: BrokerClient, topic: str, partitions: int, prefix: str, query: str, group: str | None = None
    ) -> None:
        self._client = client
        self._group = GroupOffsets(client, group) if group is not None else None
        self._name = ledger_name(prefix, query)
        self._reader = LedgerReader(KafkaLog(client, topic), ledger_partition(query, partitions), query)

    def read(self) -> Head | None:
        return self._reader.read()

    def check_topic(self) -> None:
        self._reader.check_topic()

    def take(self) -> KafkaTerm:
        version = endtxn_version(self._client)
        producer = init_producer_id(self._client, self._name, TRANSACTION_MS)
        self._reader.check_taken(self._name)
        return KafkaTerm(self._client, producer, version, self._reader, self._group)


@dataclass(frozen=True)
class KafkaTerm:
    """The ledger after it was taken: good for reads and one publication. ``producer``: the one that took it;
    ``version``: of EndTxn for its transaction."""

    client: BrokerClient
    producer: Pair
    version: int
    reader: LedgerReader
    group: GroupOffsets | None

    def read(self) -> Head | None:
        return self.reader.read()

    def publish(self, head: Head, offsets: Offsets | None = None, records: FeatureRecords | None = None) -> None:
        partition = self.reader.partition
        head = replace(head, committed_as=self.producer.committed_by(self.version))
        offset = self._write(head, offsets, records)
        error = self._end(commit=True)
        if error != OK:
            raise NotPublished("no answer" if error is None else name_of(error))
        self.reader.published(partition, offset, head)

    def _write(self, head: Head, offsets: Offsets | None, records: FeatureRecords | None) -> int:
        """Write the records, the head and the group's offsets in the transaction. Returns the head's offset. An error
        here means that nothing was committed; NotPublished means that another attempt may succeed."""
        sender = Sender(self.client, self.producer.id, WRITE_S, silence_s=TRANSACTION_MS / 1000 / 3)
        sender.begin(self.producer, self.version)
        try:
            if records is not None and records.records:
                partition = records.topic, records.partition
                self._deliver(sender, partition, self._sealed(*zip(*records.records, strict=True)))
                failpoints.reach("commit.noted")
            offset = self._write_head(sender, head)
            if self.group is not None and offsets is not None:
                self.group.send(self.producer, self.version, offsets, head.run, TRANSACTION_MS / 1000)
            return offset
        except BaseException:
            sender.abort(self.producer)
            raise
        finally:
            sender.close()

    def _write_head(self, sender: Sender, head: Head) -> int:
        """Write the head. Returns its offset; raises NotPublished if there are records between it and the end that was
        read."""
        for number, value in self.reader.to_write(head, self.producer.epoch):
            partition = self.reader.topic, number
            self._deliver(sender, partition, self._sealed([self.reader.query.encode()], [value]))
            offset = sender.offsets.get(partition, -1)
            if offset < 0:
                raise NotPublished("no broker has told where it was written")
            if not self.reader.follows(number, offset):
                raise NotPublished("what was read was not the newest head")
        return offset

    def _deliver(self, sender: Sender, partition: tuple[str, int], batches: Iterable[Sealed]) -> None:
        try:
            for sealed in batches:
                sender.add(partition, sealed)
            sender.wait_until_below(0)
            return
        except EosError as error:
            failure = error
        gone = {name_of(code) for code in TRANSACTION_GONE}
        if failure.condition == "EOS_FENCED" or failure.parameters.get("reason") in gone:
            raise NotPublished(failure.message)
        if failure.condition == "EOS_UNAUTHORIZED" and "reason" in failure.parameters:
            raise ledger_unauthorized(f"write the ledger topic {partition[0]}: {failure.parameters['reason']}")
        raise stop("EOS_LEDGER_NOT_WRITABLE.head", ledger=partition[0], why=failure.message)

    def _sealed(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> Iterator[Sealed]:
        """Yield records for one partition, encoded as record batches."""
        encoder = Encoder(self.producer.producer_id, self.producer.epoch, "gzip")
        times = np.full(len(keys), int(1000 * system.time_of_day()))
        rows = Rows(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), times)
        return (sealed for _, sealed in encoder.encode(rows, [len(keys)], [0]))

    def _end(self, commit: bool) -> int | None:
        return end_own_txn(self.client, astuple(self.producer), commit, TRANSACTION_MS / 1000, self.version)
