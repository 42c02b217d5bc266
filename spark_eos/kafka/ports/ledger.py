"""The ledger topic: the port ``Ledger`` for one query.

A compacted topic whose newest record under the query's id is its head.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import astuple

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError as ClientError

from spark_eos.errors import EosError, KafkaError, LedgerError
from spark_eos.kafka.admin.topics import begin_offsets, end_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.errors import FENCED, UNAUTHORIZED, ledger_unauthorized
from spark_eos.kafka.net.client import OK, PASSING, Fetched, wire
from spark_eos.kafka.producer.sender import Sender
from spark_eos.kafka.records.encode import Encoder, Rows, Sealed
from spark_eos.kafka.requests.end_txn import end_own_txn
from spark_eos.kafka.requests.init_producer_id import init_producer_id
from spark_eos.protocol.head import Head, Offsets, Pair, decode, encode
from spark_eos.protocol.names import ledger_name
from spark_eos.protocol.ports import NotPublished
from spark_eos.retry import retrying

READ_SECONDS = 60.0
TRANSACTION_MS = 10_000
"""A ledger transaction lasts milliseconds; one that a crash left open hides the heads behind it for at most so long."""

_TAKEN_OR_FORGOTTEN = {
    ClientError(code).name()
    for code in (
        ClientError.INVALID_PRODUCER_ID_MAPPING,
        ClientError.UNKNOWN_PRODUCER_ID,
        ClientError.INVALID_TXN_STATE,
        120,  # TRANSACTION_ABORTABLE
    )
}
"""The transaction was ended, by its time-out or by somebody else; or the coordinator has forgotten its id, when the
query was idle for so long (transactional.id.expiration.ms, seven days). Take the ledger anew."""

_FIRST_STRIDE = 64
_FETCH_BYTES = 4 << 20
#: Requests that may be without an answer before the time for a step is over.
_TRIES = 3
#: A coordinator that has just started may not know a topic yet.
_OFFSETS_LATER = PASSING | {ClientError.UNKNOWN_TOPIC_OR_PART}


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
        self._kafka, self._group = kafka, group
        self._name = ledger_name(prefix, query)
        self._reader = _Reader(kafka, topic, ledger_partition(query, partitions), query)

    def read(self) -> Head | None:
        return self._reader.read()

    def take(self) -> KafkaTerm:
        own = init_producer_id(wire(self._kafka), self._name, TRANSACTION_MS)
        return KafkaTerm(self._kafka, own, self._reader, self._group)


class KafkaTerm:
    """The ledger, taken: good for reads and one publication. ``own``: the producer that it publishes with."""

    def __init__(self, kafka: KafkaProperties, own: Pair, reader: _Reader, group: str | None) -> None:
        self._kafka, self._own, self._reader, self._group = kafka, own, reader, group

    def read(self) -> Head | None:
        return self._reader.read()

    def publish(self, head: Head, offsets: Offsets | None = None) -> None:
        self._write(head, offsets)
        error = self._end(commit=True)
        if error != OK:
            raise NotPublished("no answer" if error is None else ClientError(error).str())

    def _write(self, head: Head, offsets: Offsets | None) -> None:
        """What fails in here has committed nothing: the cause is told where a new attempt would not help."""
        sender = Sender(self._kafka, self._own.id, TRANSACTION_MS / 1000)
        try:
            self._deliver(sender, head)
            if self._group is not None and offsets is not None:
                self._send_offsets(self._group, offsets)
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
        if failure.condition == "EOS_FENCED" or failure.parameters.get("reason") in _TAKEN_OR_FORGOTTEN:
            raise NotPublished(failure.message)
        if failure.condition == "EOS_DELIVERY_UNAUTHORIZED":
            raise ledger_unauthorized(f"write the ledger topic {self._reader.topic}: {failure.parameters['reason']}")
        raise LedgerError(
            "EOS_LEDGER_NOT_WRITABLE",
            f"The decision could not be written to {self._reader.topic}. {failure.message}",
            hint="Nothing was decided. See the ledger topic's min.insync.replicas and max.message.bytes.",
            **failure.parameters,
        )

    def _sealed(self, head: Head) -> Sealed:
        """The head as a record batch of its own."""
        encoder = Encoder(self._own.producer_id, self._own.epoch, "gzip")
        key, value = pa.array([self._reader.query.encode()]), pa.array([encode(head)])
        ((_, sealed),) = encoder.encode(Rows(key, value, np.array([int(1000 * time.time())])), [1], [0])
        return sealed

    def _send_offsets(self, group: str, offsets: Offsets) -> None:
        numbered = {topic: {int(p): offset for p, offset in of.items()} for topic, of in offsets.items()}
        seconds = TRANSACTION_MS / 1000
        error: int | None = None
        for _ in retrying(seconds):
            error = wire(self._kafka).commit_offsets(astuple(self._own), group, numbered, seconds / _TRIES)
            if error == OK:
                return
            if error is not None and error not in _OFFSETS_LATER:
                break
        cause = ClientError(ClientError._TIMED_OUT if error is None else error)
        if cause.code() in FENCED or cause.name() in _TAKEN_OR_FORGOTTEN:
            raise NotPublished(cause.str())
        if cause.code() in UNAUTHORIZED:
            raise ledger_unauthorized(f"commit the consumer offsets of group {group}: {cause.str()}")
        raise LedgerError(
            "EOS_LEDGER_NOT_WRITABLE",
            f"The consumer offsets of the decision could not be written for group {group}: {cause.str()}.",
            hint="Nothing was decided. Check that the group of 'offsets.group.id' and its coordinator are well.",
            reason=cause.name(),
        )

    def _end(self, commit: bool) -> int | None:
        return end_own_txn(wire(self._kafka), astuple(self._own), commit, TRANSACTION_MS / 1000)


class _Reader:
    """Finds the head, and remembers up to where it has looked, so that a look at a quiet ledger costs one request.

    A look counts only if everything below the high watermark of the same moment is stable: an open transaction of
    another query may hide a newer head of ours.
    """

    def __init__(self, kafka: KafkaProperties, topic: str, partition: int, query: str) -> None:
        self.topic, self.partition, self.query = topic, partition, query
        self._kafka, self._wire = kafka, wire(kafka)
        self._next: int | None = None
        self._head: Head | None = None

    def read(self) -> Head | None:
        if self._next is None:
            place = {self.topic: [self.partition]}
            begin = begin_offsets(self._kafka, place)[self.topic][self.partition]
            end = end_offsets(self._kafka, place, "read_uncommitted")[self.topic][self.partition]
            self._next = self._search_backwards(begin, end)
        self._next = self._read_on(self._next)
        return self._head

    def _search_backwards(self, begin: int, end: int) -> int:
        """From the end, in strides that grow: the head of a running query is near it. Returns where to read on."""
        stride, start = _FIRST_STRIDE, end
        while self._head is None and start > begin:
            upto, start = start, max(begin, start - stride)
            self._read_on(start, upto)
            stride *= 4
        return end

    def _read_on(self, start: int, upto: int | None = None) -> int:
        """Read from ``start`` to ``upto``, by default to the high watermark as it is now; returns where it ended."""
        position = start
        fetched = None
        for _ in retrying(READ_SECONDS):
            while (fetched := self._fetch(position)) is not None and fetched.error == OK:
                upto = fetched.high_watermark if upto is None else upto
                position = self._take_in(fetched, position)
                if position >= upto:
                    return position
                if not fetched.batches:
                    break  # what is left is not stable yet
        raise self._held() if fetched is not None and fetched.error == OK else self._unreadable("no answer")

    def _fetch(self, position: int) -> Fetched | None:
        return self._wire.fetch(self.topic, self.partition, position, records=True, max_bytes=_FETCH_BYTES)

    def _take_in(self, fetched: Fetched, position: int) -> int:
        key = self.query.encode()
        for batch in fetched.batches:
            for offset, record_key, value in batch.records:
                if record_key == key and offset >= position and value is not None:
                    self._head = decode(value)
            position = max(position, batch.last + 1)
        return position

    def _held(self) -> KafkaError:
        return KafkaError(
            "EOS_LEDGER_HELD",
            f"Partition {self.partition} of the ledger {self.topic} is held by an open transaction for more than "
            f"{READ_SECONDS:.0f} s, so that its newest head cannot be told.",
            hint="Find its owner (kafka-transactions.sh find-hanging) and abort it; then start the query again.",
        )

    def _unreadable(self, reason: str) -> LedgerError:
        return LedgerError(
            "EOS_LEDGER_NOT_READABLE",
            f"Partition {self.partition} of the ledger {self.topic} cannot be read: {reason}.",
            hint="Check that the cluster is well, and the ACLs of the ledger topic (READ and DESCRIBE).",
        )
