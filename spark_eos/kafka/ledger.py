"""The ledger topic: the port ``Ledger`` for one query.

A compacted topic whose newest record under the query's id is its head.
"""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ClientError

from spark_eos.errors import KafkaError, LedgerError
from spark_eos.kafka.config import librdkafka_config
from spark_eos.kafka.metadata import begin_offsets, end_offsets
from spark_eos.kafka.producer import TransactionalProducer
from spark_eos.kafka.refusals import FENCED
from spark_eos.kafka.wire import OK, Fetched, wire
from spark_eos.options import KafkaProperties
from spark_eos.patience import patience
from spark_eos.protocol.head import Head, Offsets, decode, encode
from spark_eos.protocol.names import ledger_name
from spark_eos.protocol.ports import NotPublished

READ_SECONDS = 60.0
TRANSACTION_MS = 10_000
"""A ledger transaction lasts milliseconds; one that a crash left open hides the heads behind it for at most so long."""

_TAKEN_OR_FORGOTTEN = (*FENCED, ClientError.INVALID_PRODUCER_ID_MAPPING)
"""Somebody else has taken the ledger; or the coordinator has forgotten its id, when the query was idle for so long
(transactional.id.expiration.ms, seven days). Take it anew."""

_FIRST_STRIDE = 64
_FETCH_BYTES = 4 << 20
_HEAD_BYTES = 64 << 20
"""Before compression, to a tenth or less; the broker's limit goes by what is left."""


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
        producer = self._producer()
        producer.init()
        return KafkaTerm(producer, self._reader, self._send_offsets)

    def _producer(self) -> TransactionalProducer:
        own = {
            "linger.ms": 0,
            "compression.type": "gzip",
            "message.max.bytes": _HEAD_BYTES,
            "statistics.interval.ms": 0,
        }
        producer = TransactionalProducer(self._kafka, self._name, TRANSACTION_MS, own)
        producer.warm_up(self._reader.topic)
        return producer

    def _send_offsets(self, producer: TransactionalProducer, offsets: Offsets) -> None:
        if self._group is None:
            return
        positions = [
            TopicPartition(topic, int(partition), offset)
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        ]
        producer.send_offsets(positions, _group_metadata(self._kafka, self._group), TRANSACTION_MS / 1000)


@lru_cache(maxsize=16)
def _group_metadata(kafka: KafkaProperties, group: str) -> Any:
    """What a transaction needs to commit offsets for a group without being a member of it; holds no connection."""
    consumer = Consumer(librdkafka_config(kafka, "consumer", {"group.id": group}))
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


class KafkaTerm:
    """The ledger, taken: good for reads and one publication."""

    def __init__(
        self,
        producer: TransactionalProducer,
        reader: _Reader,
        send_offsets: Callable[[TransactionalProducer, Offsets], None],
    ) -> None:
        self._producer, self._reader, self._send_offsets = producer, reader, send_offsets
        weakref.finalize(self, producer.close)  # a term need not be used

    def read(self) -> Head | None:
        return self._reader.read()

    def publish(self, head: Head, offsets: Offsets | None = None) -> None:
        try:
            self._write(head, offsets)
            self._producer.commit(TRANSACTION_MS / 1000)
        except KafkaException as error:
            raise NotPublished(error.args[0].str()) from None
        finally:
            self._producer.close()

    def _write(self, head: Head, offsets: Offsets | None) -> None:
        """What fails in here has committed nothing: the cause is told where a new attempt would not help."""
        try:
            self._producer.begin()
            self._producer.produce(
                self._reader.topic, encode(head), self._reader.query.encode(), self._reader.partition
            )
            if offsets is not None:
                self._send_offsets(self._producer, offsets)
            failure = self._producer.drain(TRANSACTION_MS / 1000)
        except KafkaException as error:
            failure = error.args[0]
        if failure is None:
            return
        self._producer.abort()
        if failure.code() in _TAKEN_OR_FORGOTTEN or failure.retriable():
            raise NotPublished(failure.str())
        raise LedgerError(
            "EOS_LEDGER_NOT_WRITABLE",
            f"The decision could not be written to {self._reader.topic}: {failure.str()}.",
            hint="Nothing was decided. Check min.insync.replicas and the ACLs of the ledger topic and, where "
            "'offsets.group.id' is set, of the group.",
            reason=failure.name(),
        )


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
        for _ in patience(READ_SECONDS):
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
