"""Rows to Kafka: Arrow batches as columns, or in one tight loop, into a producer; counted and digested on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, repeat
from operator import invert
from typing import Any, ParamSpec

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException
from crc32c import crc32c

from spark_eos.errors import RowError
from spark_eos.protocol.batch import DIGEST_BITS
from spark_eos.sink.schema import Columns

P = ParamSpec("P")

_ABSENT = b"\x00null"
"""Stands for null in digests; the same bytes in a value are told from it by the number of nulls."""
_NULL_WEIGHT = 1 << 32
#: Bytes of a field from which a view of it costs less than a copy.
_WORTH_A_VIEW = 400


class RowBatch:
    """One Arrow batch of the sink's columns, as a producer takes them, and their digest.

    ``topic`` is the one for all rows, or None where the column says it.
    """

    def __init__(self, batch: pa.RecordBatch, columns: Columns, topic: str | None) -> None:
        self.rows = batch.num_rows
        self._batch, self._topic = batch, topic
        self.topics = _topics(batch, self.rows) if columns.topic else None
        self._value = _as_bytes(batch.column("value"))
        self._key = _as_bytes(batch.column("key")) if columns.key else None
        self._nulls: int = self._value.null_count + (0 if self._key is None else self._key.null_count)
        self.partition_column = batch.column("partition") if columns.partition else None
        self._timestamp_column = batch.column("timestamp") if columns.timestamp else None
        self._headers = batch.column("headers").to_pylist() if columns.headers else None

    def digest(self) -> int:
        """A sum of row hashes over everything that the user gave: equal for the same rows in any order.

        The hash is inverted from column to column: else a byte that moved from the key into the value would not show.
        """
        hashes: int | Iterable[int] = 0  # one for all rows, as long as they have nothing of their own
        if self.topics is not None:
            hashes = map(_crc, self.topics)
        elif self._topic:
            hashes = _crc(self._topic)
        if self._key is not None and self._key.null_count == self.rows and isinstance(hashes, int):
            hashes = crc32c(_ABSENT, ~hashes)
        elif self._key is not None:
            hashes = map(crc32c, _hashed(self._key), _inverted(hashes))
        for column in (self.partition_column, self._timestamp_column):
            if column is not None:
                hashes = map(crc32c, _raw(column), _inverted(hashes))
        if self._headers is not None:
            hashes = map(crc32c, (repr(h).encode() for h in self._headers), _inverted(hashes))
        rows: int = sum(map(crc32c, _hashed(self._value), _inverted(hashes)))
        return (rows + self._nulls * _NULL_WEIGHT) % (1 << DIGEST_BITS)

    def by_topic(self) -> Iterator[tuple[Any, dict[str, pa.Array]]]:
        """Each topic with its rows, as the columns that `ArrowProducer.write` takes."""
        columns = {"value": self._value}
        if self._key is not None:
            columns["key"] = self._key
        if self._timestamp_column is not None:
            columns["time_ms"] = pc.divide(self._timestamp_column.cast(pa.int64()), 1000)
        if self.partition_column is not None:
            columns["partition"] = self.partition_column
        if self.topics is None:
            yield self._topic, columns
            return
        rows = pa.RecordBatch.from_pydict(columns)
        names = self._batch.column("topic").dictionary_encode()
        place = names.indices.to_numpy()
        order = np.argsort(place, kind="stable")
        ends = np.cumsum(np.bincount(place))
        for topic, mine in zip(names.dictionary.to_pylist(), np.split(order, ends[:-1]), strict=True):
            # Copied, not sliced: a topic of few rows would hold on to whole batches.
            some = rows.take(pa.array(mine))
            yield topic, dict(zip(some.schema.names, some.columns, strict=True))

    def arguments(self) -> Iterator[tuple[Any, ...]]:
        """For each row: topic, value, key, partition, timestamp in milliseconds (0 = now), headers."""
        topics: Iterable[Any] = repeat(self._topic) if self.topics is None else self.topics
        return zip(
            topics,
            self._value.to_pylist(),
            repeat(None) if self._key is None else self._key.to_pylist(),
            repeat(-1) if self.partition_column is None else pc.fill_null(self.partition_column, -1).to_pylist(),
            repeat(0) if self._timestamp_column is None else _milliseconds(self._timestamp_column),
            repeat(None) if self._headers is None else map(_headers, self._headers),
            strict=False,
        )

    @property
    def plain(self) -> bool:
        """Only topic, value and key: the quick loop will do."""
        return self.partition_column is None and self._timestamp_column is None and self._headers is None


def produce_all(produce: Callable[..., None], wait: Callable[[], None], rows: RowBatch) -> None:
    """Hand every row to the producer; ``wait`` makes room when its queue is full. Raises RowError."""
    arguments = rows.arguments()
    topic: str | None = None
    value: bytes | None = None
    try:
        if rows.plain:
            for topic, value, key, _, _, _ in arguments:
                try:
                    produce(topic, value, key)
                except BufferError:
                    _insist(produce, wait, topic, value, key)
        else:
            for topic, value, key, partition, timestamp, headers in arguments:
                more = {"partition": partition, "timestamp": timestamp, "headers": headers}
                try:
                    produce(topic, value, key, **more)
                except BufferError:
                    _insist(produce, wait, topic, value, key, **more)
    except KafkaException as error:
        raise _refused(error.args[0], topic, value) from None


def _insist(produce: Callable[P, None], wait: Callable[[], None], *arguments: P.args, **more: P.kwargs) -> None:
    while True:
        wait()
        try:
            return produce(*arguments, **more)
        except BufferError:
            continue


def check_partitions(rows: RowBatch, topic: str | None, counts: Mapping[str, int]) -> None:
    """Every partition that a row asks for must exist. Raises RowError."""
    if rows.partition_column is None:
        return
    if topic is not None:
        groups = [(topic, rows.partition_column)]
    else:
        names = pa.array(rows.topics, pa.string())
        groups = [(t, rows.partition_column.filter(pc.equal(names, t))) for t in set(rows.topics or ())]
    for name, asked in groups:
        bounds = pc.min_max(asked).as_py()
        for partition in (bounds["min"], bounds["max"]):
            if partition is not None and not 0 <= partition < counts[name]:
                raise RowError(
                    "EOS_ROW_PARTITION_OUT_OF_RANGE",
                    f"A row asks for partition {partition} of topic {name}, which has {counts[name]}.",
                    hint="Partitions are counted from 0; a null lets Kafka choose.",
                    topic=name,
                    partition=partition,
                )


def _topics(batch: pa.RecordBatch, rows: int) -> list[str]:
    column = batch.column("topic")
    if column.null_count:
        raise RowError(
            "EOS_ROW_TOPIC_NULL",
            f"{column.null_count} of {rows} rows have no topic.",
            hint="Fill the column 'topic', filter such rows out, or set the option 'topic'.",
        )
    topics: list[str] = column.to_pylist()
    return topics


def _as_bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        return column
    return column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())


def _hashed(column: pa.Array) -> Sequence[bytes | memoryview]:
    """The column's fields as they go into the digest, which knows no null. Large ones are not copied."""
    if column.nbytes < _WORTH_A_VIEW * len(column):
        fields: list[Any] = column.to_pylist()
        return _present(fields) if column.null_count else fields
    _, offsets, data = column.buffers()
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    bounds = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1].tolist()
    whole = memoryview(data)
    views = [whole[begin:end] for begin, end in pairwise(bounds)]
    if not column.null_count:
        return views
    return [view if valid else _ABSENT for view, valid in zip(views, column.is_valid().to_pylist(), strict=True)]


def _raw(column: pa.Array) -> list[bytes]:
    width = column.type.bit_width // 8
    return _present(column.view(pa.binary(width)).to_pylist())


def _present(values: list[bytes | None]) -> list[bytes]:
    return [_ABSENT if value is None else value for value in values]


def _inverted(hashes: int | Iterable[int]) -> Iterator[int]:
    return repeat(~hashes) if isinstance(hashes, int) else map(invert, hashes)


def _crc(topic: str) -> int:
    return crc32c(topic.encode())


def _milliseconds(column: pa.Array) -> list[int]:
    """Spark's timestamps are microseconds; Kafka's are milliseconds since 1970. Null: now."""
    times: list[int] = pc.fill_null(pc.divide(column.cast(pa.int64()), 1000), 0).to_pylist()
    return times


def _headers(headers: list[dict[str, Any] | None] | None) -> list[tuple[str, bytes | None]] | None:
    if headers is None:
        return None
    pairs = [(header["key"], header["value"]) for header in headers if header is not None and header["key"] is not None]
    if len(pairs) < len(headers):
        raise RowError(
            "EOS_ROW_HEADER_NULL",
            "A row has a header that is null, or whose key is.",
            hint="Kafka knows no header without a name: filter such entries out of the column 'headers'.",
        )
    return pairs


def _refused(error: ClientError, topic: str | None, value: bytes | None) -> RowError:
    size = 0 if value is None else len(value)
    if error.code() == ClientError.MSG_SIZE_TOO_LARGE:
        return RowError(
            "EOS_ROW_TOO_LARGE",
            f"A row for topic {topic} has a value of {size} bytes, more than the producer's limit.",
            hint="Raise 'kafka.message.max.bytes' and the topic's max.message.bytes, or shrink the row.",
            topic=topic,
            bytes=size,
        )
    return RowError(
        "EOS_ROW_REFUSED",
        f"A row for topic {topic} was refused: {error.str()}.",
        hint="Check the topic and the row's columns.",
        topic=topic,
    )
