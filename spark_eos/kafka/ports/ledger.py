"""The ledger topic: the port ``Ledger`` for one query.

A compacted topic whose newest record under the query's id is its head.
"""

from __future__ import annotations

import zlib
from dataclasses import astuple

import numpy as np
import pyarrow as pa

from spark_eos import system
from spark_eos.errors import EosError, LedgerError
from spark_eos.kafka.codes import OK, TRANSACTION_GONE, name_of
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.errors import ledger_unauthorized
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.ports.group_offsets import GroupOffsets
from spark_eos.kafka.ports.ledger_log import KafkaLog
from spark_eos.kafka.ports.ledger_reader import LedgerReader
from spark_eos.kafka.producer.sender import Sender
from spark_eos.kafka.records.encode import Encoder, Rows, Sealed
from spark_eos.kafka.requests.end_txn import end_own_txn
from spark_eos.kafka.requests.init_producer_id import init_producer_id
from spark_eos.protocol.head import Head, Offsets, Pair, encode
from spark_eos.protocol.names import first_names, ledger_name
from spark_eos.protocol.ports import NotPublished

WRITE_S = 60.0
"""For how long a leader that is away is waited for: the transaction begins when it takes the head."""

TRANSACTION_MS = 10_000
"""A ledger transaction lasts milliseconds; one that a crash left open hides the heads behind it for at most so long."""


def ledger_partition(query: str, partitions: int) -> int:
    """The partition that holds a query's heads."""
    return zlib.crc32(query.encode()) % partitions


class KafkaLedger:
    """Reads and writes one query's head. ``group`` is the consumer group that gets the offsets of decisions.

    Not for use by several threads at once.
    """

    def __init__(
        self, kafka: KafkaProperties, topic: str, partitions: int, prefix: str, query: str, group: str | None = None
    ) -> None:
        self._kafka = kafka
        self._group = GroupOffsets(kafka, group) if group is not None else None
        self._name = ledger_name(prefix, query)
        self.first_names = first_names(prefix, query)
        self._reader = LedgerReader(KafkaLog(kafka, topic), ledger_partition(query, partitions), query)

    def read(self) -> Head | None:
        return self._reader.read()

    def take(self) -> KafkaTerm:
        own = init_producer_id(broker_client(self._kafka), self._name, TRANSACTION_MS)
        return KafkaTerm(self._kafka, own, self._reader, self._group)


class KafkaTerm:
    """The ledger, taken: good for reads and one publication. ``own``: the producer that it publishes with."""

    def __init__(self, kafka: KafkaProperties, own: Pair, reader: LedgerReader, group: GroupOffsets | None) -> None:
        self._kafka, self._own, self._reader, self._group = kafka, own, reader, group

    def read(self) -> Head | None:
        return self._reader.read()

    def publish(self, head: Head, offsets: Offsets | None = None) -> None:
        partition = self._reader.partition
        offset = self._write(head, offsets)
        error = self._end(commit=True)
        if error != OK:
            raise NotPublished("no answer" if error is None else name_of(error))
        self._reader.published(partition, offset)

    def _write(self, head: Head, offsets: Offsets | None) -> int:
        """The offset at which it was written. What fails in here has committed nothing: the cause is told where a new
        attempt would not help."""
        sender = Sender(self._kafka, self._own.id, WRITE_S, silence_s=TRANSACTION_MS / 1000 / 3)
        try:
            self._deliver(sender, head)
            place = self._reader.topic, self._reader.partition
            offset = sender.offsets.get(place, -1)
            if offset < 0:
                raise NotPublished("no broker has told where it was written")
            if not self._reader.follows(place[1], offset):
                raise NotPublished("what was read was not the newest head")
            if self._group is not None and offsets is not None:
                self._group.send(self._own, offsets, TRANSACTION_MS / 1000)
            return offset
        except BaseException:
            sender.abort(self._own)
            raise
        finally:
            sender.close()

    def _deliver(self, sender: Sender, head: Head) -> None:
        try:
            sender.add((self._reader.topic, self._reader.partition), self._sealed(head))
            sender.wait_until_below(0)
            return
        except EosError as error:
            failure = error
        gone = {name_of(code) for code in TRANSACTION_GONE}
        if failure.condition == "EOS_FENCED" or failure.parameters.get("reason") in gone:
            raise NotPublished(failure.message)
        if failure.condition == "EOS_DELIVERY_UNAUTHORIZED":
            raise ledger_unauthorized(f"write the ledger topic {self._reader.topic}: {failure.parameters['reason']}")
        raise LedgerError(
            "EOS_LEDGER_NOT_WRITABLE",
            f"The decision could not be written to {self._reader.topic}. {failure.message}",
            hint="Nothing was decided. See the ledger topic's min.insync.replicas and max.message.bytes. Where it is "
            "INVALID_TIMESTAMP, the clock of this machine is ahead of the broker's by more than the topic allows (an "
            "hour, by default): set it.",
            **failure.parameters,
        )

    def _sealed(self, head: Head) -> Sealed:
        """The head as a record batch of its own."""
        encoder = Encoder(self._own.producer_id, self._own.epoch, "gzip")
        key, value = pa.array([self._reader.query.encode()]), pa.array([encode(head)])
        ((_, sealed),) = encoder.encode(Rows(key, value, np.array([int(1000 * system.time_of_day())])), [1], [0])
        return sealed

    def _end(self, commit: bool) -> int | None:
        return end_own_txn(broker_client(self._kafka), astuple(self._own), commit, TRANSACTION_MS / 1000)
