"""Rows that brokers refuse for good: they go to a dead-letter topic, in the same transaction.

A refused batch is split into halves until the rows at fault are known, as each is refused alone. A dead letter has
the row's key, value, timestamp and headers, and headers with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import EosError, stop
from spark_eos.kafka.codes import REFUSED_FOR_GOOD, TOO_LARGE, Code, name_of
from spark_eos.kafka.errors import too_large
from spark_eos.kafka.letter_headers import EXCEPTION, MESSAGE, TARGET_PARTITION, TARGET_TOPIC
from spark_eos.kafka.records.batches import Damage, TooLargeBatch
from spark_eos.kafka.records.encode import Encoder, Sealed
from spark_eos.kafka.records.fields import read_headers, read_varints
from spark_eos.kafka.records.headers import encode_headers
from spark_eos.kafka.records.resealing import halves, rows_of

#: Java's exceptions for the codes, as in Kafka Streams.
_EXCEPTIONS = {
    Code.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    Code.RECORD_LIST_TOO_LARGE: "RecordBatchTooLargeException",
    Code.INVALID_RECORD: "InvalidRecordException",
}
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True)
class DeadLetterTopic:
    """The topic for rows that brokers refuse, and its number of partitions."""

    topic: str
    partitions: int


@dataclass(frozen=True)
class Letter:
    """A dead letter, as columns of one row for `ArrowProducer.write`."""

    key: pa.Array
    value: pa.Array
    time_ms: pa.Array
    headers: pa.BinaryArray


class Splitting:
    """Splits the batches of one transaction that brokers refuse for their size; a single row is an error.

    ``codes``: error codes after which a batch is split; ``rows``: the number of refused rows; ``limits``: the largest
    batch that each topic accepts, in bytes, if known.
    """

    codes: Set[int] = TOO_LARGE

    def __init__(self, encoder: Encoder) -> None:
        self.rows = 0
        self.limits: dict[str, int] = {}
        self._encoder = encoder

    def fits(self, partition: TopicPartition, sealed: Sealed) -> bool:
        """Return whether the partition accepts a batch of this size, as far as known. A single row is always tried."""
        return sealed.count == 1 or len(sealed.data) <= self.limits.get(partition[0], len(sealed.data))

    def take(self, partition: TopicPartition, sealed: Sealed, code: int) -> list[Sealed]:
        """Return the batches to send instead of a refused one. Raises RowError (EOS_ROW_TOO_LARGE) for a single row,
        and KafkaError for a batch that cannot be split."""
        if sealed.count == 1:
            raise too_large(partition, 1, len(sealed.data))
        topic, size = partition[0], len(sealed.data)
        self.limits[topic] = min(self.limits.get(topic, size), size - 1)
        return self._halves(partition, sealed, code)

    def _halves(self, partition: TopicPartition, sealed: Sealed, code: int) -> list[Sealed]:
        with _told_of_damage(partition, sealed, code):
            return list(halves(sealed, self._encoder))

    def letters(self) -> list[Letter]:
        """Return the dead letters for rows that were refused since the last call, in each partition's order: none
        here."""
        return []


class Refusals(Splitting):
    """Splits refused batches, and makes dead letters for the topic ``topic`` of refused rows."""

    codes = REFUSED_FOR_GOOD

    def __init__(self, topic: str, encoder: Encoder) -> None:
        super().__init__(encoder)
        self.topic = topic
        self._waiting: list[tuple[TopicPartition, Sealed, int]] = []

    def fits(self, partition: TopicPartition, sealed: Sealed) -> bool:
        """Return whether the partition accepts a batch of this size, as far as known."""
        return len(sealed.data) <= self.limits.get(partition[0], len(sealed.data))

    def take(self, partition: TopicPartition, sealed: Sealed, code: int) -> list[Sealed]:
        """Return the batches to send instead of a refused one; none for a single row, which becomes a dead letter.

        Raises TopicError (EOS_DEAD_LETTER_TOPIC) if that row is a dead letter itself, and KafkaError for a batch that
        cannot be split.
        """
        if sealed.count > 1:
            return self._halves(partition, sealed, code)
        if partition[0] == self.topic:
            raise _refused(partition, sealed, code)
        self._waiting.append((partition, sealed, code))
        self.rows += 1
        return []

    def letters(self) -> list[Letter]:
        """Return the dead letters for rows that were refused since the last call, in each partition's order."""
        waiting, self._waiting = self._waiting, []
        return [_letter(partition, sealed, code) for partition, sealed, code in waiting]


def _letter(partition: TopicPartition, sealed: Sealed, code: int) -> Letter:
    with _told_of_damage(partition, sealed, code):
        row = rows_of(sealed)
        own = [] if row.headers is None else _decoded(row.headers[0].as_py())
    headers = [*own, *_why(partition, sealed, code)]
    return Letter(row.key, row.value, pa.array(row.time), encode_headers(pa.array([headers], _HEADERS)))


def _decoded(headers: bytes) -> list[tuple[str, bytes | None]]:
    (count,), (begin,) = read_varints(np.frombuffer(headers, np.uint8), np.zeros(1, np.int64))
    return read_headers(headers, int(begin), len(headers), int(count))


def _why(refused_by: TopicPartition, sealed: Sealed, code: int) -> list[tuple[str, bytes]]:
    topic, partition = refused_by
    if code == Code.INVALID_RECORD:
        message = f"Partition {partition} of topic {topic} refused the row ({name_of(code)})."
    else:
        message = f"Partition {partition} of topic {topic} refused a batch of 1 row and {len(sealed.data)} bytes."
    headers = {
        EXCEPTION: f"org.apache.kafka.common.errors.{_EXCEPTIONS[Code(code)]}",
        MESSAGE: message,
        TARGET_TOPIC: topic,
        TARGET_PARTITION: str(partition),
    }
    return [(name, text.encode()) for name, text in headers.items()]


def _refused(refused_by: TopicPartition, sealed: Sealed, code: int) -> EosError:
    topic, partition = refused_by
    return stop(
        "EOS_DEAD_LETTER_TOPIC.row", topic=topic, bytes=len(sealed.data), reason=name_of(code), partition=partition
    )


def unclear(refused_by: TopicPartition, code: int) -> EosError:
    """Return the error for a refusal of a batch of which an earlier copy may be in the log."""
    topic, partition = refused_by
    return stop("EOS_DELIVERY_FAILED.refusal_unclear", topic=topic, reason=name_of(code), partition=partition)


@contextmanager
def _told_of_damage(partition: TopicPartition, sealed: Sealed, code: int) -> Iterator[None]:
    """Raise KafkaError for a batch whose rows cannot be read."""
    try:
        yield
    except Damage as damage:
        raise _damaged(partition, sealed, code, damage) from None


def _damaged(refused_by: TopicPartition, sealed: Sealed, code: int, damage: Damage) -> EosError:
    """Return the error for a refused batch that cannot be split: it was copied unchanged, and is damaged or too large
    to decode."""
    topic, partition = refused_by
    if isinstance(damage, TooLargeBatch):
        return stop(
            "EOS_SOURCE_BATCH_TOO_LARGE.copy",
            topic=topic,
            partition=partition,
            reason=name_of(code),
            rows=sealed.count,
            max_bytes=damage.most,
        )
    return stop(
        "EOS_SOURCE_DAMAGED.copy",
        topic=topic,
        partition=partition,
        reason=name_of(code),
        rows=sealed.count,
        damage=damage,
    )
