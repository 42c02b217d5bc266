"""What becomes of rows that brokers refuse for good: they go to a dead-letter topic, in the same transaction.

A batch that is refused is cut into halves, until it is clear which rows are at fault: those that are refused alone. A
dead letter is the row's key, value, timestamp and headers, and headers that say why. Those are named as in Kafka
Streams (KIP-1034), where Kafka Streams has them; it has none for the partition that the row was meant for.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_eos.errors import EosError, stop
from spark_eos.kafka.codes import REFUSED_FOR_GOOD, TOO_LARGE, Code, name_of
from spark_eos.kafka.errors import too_large
from spark_eos.kafka.records.batches import Damage, TooLargeBatch
from spark_eos.kafka.records.encode import Encoder, Sealed
from spark_eos.kafka.records.fields import read_headers, read_varints
from spark_eos.kafka.records.headers import encode_headers
from spark_eos.kafka.records.resealing import halves, rows_of
from spark_eos.topic_partition import TopicPartition

EXCEPTION, MESSAGE = "__streams.errors.exception", "__streams.errors.message"
TARGET_TOPIC, TARGET_PARTITION = "__spark_eos.target.topic", "__spark_eos.target.partition"

#: Java's names for the codes, as Kafka Streams has them.
_EXCEPTIONS = {
    Code.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    Code.RECORD_LIST_TOO_LARGE: "RecordBatchTooLargeException",
    Code.INVALID_RECORD: "InvalidRecordException",
}
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True)
class DeadLetters:
    """The topic for rows that brokers refuse, and how many partitions it has."""

    topic: str
    partitions: int


@dataclass(frozen=True)
class Letter:
    """One row for the dead-letter topic, as columns of one row for `ArrowProducer.write`."""

    key: pa.Array
    value: pa.Array
    time_ms: pa.Array
    headers: pa.BinaryArray


class Splitting:
    """How one transaction splits batches that brokers refuse for their size; a single row is an error.

    ``codes``: of refusals that end in smaller batches; ``rows``: how many rows were refused; ``limits``: the largest
    batch that a topic takes, in bytes, where that is known.
    """

    codes: Set[int] = TOO_LARGE

    def __init__(self, encoder: Encoder) -> None:
        self.rows = 0
        self.limits: dict[str, int] = {}
        self._encoder = encoder

    def fits(self, place: TopicPartition, sealed: Sealed) -> bool:
        """Whether the partition takes a batch of this size, as far as it is known. A single row is always tried."""
        return sealed.count == 1 or len(sealed.data) <= self.limits.get(place[0], len(sealed.data))

    def take(self, place: TopicPartition, sealed: Sealed, code: int) -> list[Sealed]:
        """The batches to send in place of one that is refused. Raises RowError (EOS_ROW_TOO_LARGE) for a single row."""
        if sealed.count == 1:
            raise too_large(place, 1, len(sealed.data))
        topic, size = place[0], len(sealed.data)
        self.limits[topic] = min(self.limits.get(topic, size), size - 1)
        return list(halves(sealed, self._encoder))

    def letters(self) -> list[Letter]:
        """For what was refused since the last call, in the order of each partition."""
        return []


class Refusals(Splitting):
    """The rows of one transaction that were refused, for the dead-letter topic ``topic``."""

    codes = REFUSED_FOR_GOOD

    def __init__(self, topic: str, encoder: Encoder) -> None:
        super().__init__(encoder)
        self.topic = topic
        self._waiting: list[tuple[TopicPartition, Sealed, int]] = []

    def fits(self, place: TopicPartition, sealed: Sealed) -> bool:
        """Whether the partition takes a batch of this size, as far as it is known."""
        return len(sealed.data) <= self.limits.get(place[0], len(sealed.data))

    def take(self, place: TopicPartition, sealed: Sealed, code: int) -> list[Sealed]:
        """The batches to send in place of one that is refused; none for a single row, which becomes a dead letter.

        Raises TopicError (EOS_DEAD_LETTER_TOPIC) where that is refused itself.
        """
        if sealed.count > 1:
            return list(halves(sealed, self._encoder))
        if place[0] == self.topic:
            raise _refused(place, sealed, code)
        self._waiting.append((place, sealed, code))
        self.rows += 1
        return []

    def letters(self) -> list[Letter]:
        """For what was refused since the last call, in the order of each partition."""
        waiting, self._waiting = self._waiting, []
        return [_letter(place, sealed, code) for place, sealed, code in waiting]


def _letter(place: TopicPartition, sealed: Sealed, code: int) -> Letter:
    row = rows_of(sealed)
    own = [] if row.headers is None else _decoded(row.headers[0].as_py())
    headers = [*own, *_why(place, sealed, code)]
    return Letter(row.key, row.value, pa.array(row.time), encode_headers(pa.array([headers], _HEADERS)))


def _decoded(headers: bytes) -> list[tuple[str, bytes | None]]:
    (count,), (begin,) = read_varints(np.frombuffer(headers, np.uint8), np.zeros(1, np.int64))
    return read_headers(headers, int(begin), len(headers), int(count))


def _why(place: TopicPartition, sealed: Sealed, code: int) -> list[tuple[str, bytes]]:
    topic, partition = place
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


def _refused(place: TopicPartition, sealed: Sealed, code: int) -> EosError:
    topic, partition = place
    return stop(
        "EOS_DEAD_LETTER_TOPIC.row", topic=topic, bytes=len(sealed.data), reason=name_of(code), partition=partition
    )


def unclear(place: TopicPartition, code: int) -> EosError:
    """The error for a refusal that is not the first answer: what was sent before may be in the log all the same."""
    topic, partition = place
    return stop("EOS_DELIVERY_FAILED.refusal_unclear", topic=topic, reason=name_of(code), partition=partition)


def damaged(place: TopicPartition, sealed: Sealed, code: int, damage: Damage) -> EosError:
    """The error for a refused batch of which nobody can make smaller ones: it was copied as it is, and is not sound, or
    too large for that."""
    topic, partition = place
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
