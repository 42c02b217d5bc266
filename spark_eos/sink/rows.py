"""The rows of an Arrow batch as the columns that a producer takes, checked and digested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.base.printable import excerpt
from spark_eos.base.topic_partition import is_topic_name
from spark_eos.errors import EosError, stop
from spark_eos.kafka.records.headers import encode_headers
from spark_eos.protocol.head import Digest
from spark_eos.sink.counting import size_of
from spark_eos.sink.digests import digest
from spark_eos.sink.schema import Columns

#: Characters of a row's text in a message.
_SHOWN = 60


class RowBatch:
    """One Arrow batch of the sink's columns, as a producer takes them, and their digest. A missing one is None.

    ``topic`` is the topic for all rows, or None if there is a column for it. ``places``: a number for each row, by its
    position in the source, if that is known.
    """

    def __init__(
        self, batch: pa.RecordBatch, columns: Columns, topic: str | None, places: np.ndarray | None = None
    ) -> None:
        self.places = places
        self.rows = batch.num_rows
        self._batch, self.topic = batch, topic
        self.topics = _topics(batch, self.rows) if columns.topic else None
        self.value = _as_bytes(batch.column("value"))
        self.key = _as_bytes(batch.column("key")) if columns.key else None
        self.partition_column = batch.column("partition") if columns.partition else None
        self.timestamp_column = batch.column("timestamp") if columns.timestamp else None
        self.headers_column = _checked_headers(batch.column("headers")) if columns.headers else None

    @cached_property
    def encoded_headers(self) -> pa.BinaryArray | None:
        """The headers as bytes of a record; no headers for null. Raises RowError."""
        if self.headers_column is None:
            return None
        return encode_headers(self.headers_column)

    @property
    def bytes(self) -> int:
        """The bytes of keys and values."""
        return size_of(self._batch)

    def digest(self, by: Digest) -> int:
        """Return the digest of the rows: see `spark_eos.sink.digests`."""
        return digest(self, by)

    @property
    def oldest_ms(self) -> int | None:
        """The earliest timestamp that a row was given; None where none was."""
        if self.timestamp_column is None:
            return None
        oldest = pc.min(self.timestamp_column.cast(pa.int64())).as_py()
        return None if oldest is None else oldest // 1000

    def oldest_by_topic(self) -> dict[str, int]:
        """Return the earliest timestamp from 1970 on in the rows of each topic; empty where no row was given one."""
        if self.timestamp_column is None:
            return {}
        times_ms = pc.divide(self.timestamp_column.cast(pa.int64()), 1000)
        topics = pa.repeat(pa.scalar(self.topic), self.rows) if self.topics is None else pa.array(self.topics)
        dated = pa.table([topics, times_ms], ["topic", "ms"]).filter(pc.greater_equal(times_ms, 0))
        oldest = dated.group_by("topic").aggregate([("ms", "min")])
        return dict(zip(oldest["topic"].to_pylist(), oldest["ms_min"].to_pylist(), strict=True))

    def by_topic(self) -> Iterator[tuple[Any, dict[str, pa.Array]]]:
        """Yield each topic with its rows, as the columns for `ArrowProducer.write`."""
        columns = {"value": self.value}
        if self.key is not None:
            columns["key"] = self.key
        if self.timestamp_column is not None:
            columns["time_ms"] = pc.divide(self.timestamp_column.cast(pa.int64()), 1000)
        if self.partition_column is not None:
            columns["partition"] = self.partition_column
        if self.encoded_headers is not None:
            columns["headers"] = self.encoded_headers
        if self.topics is None:
            yield self.topic, columns
            return
        rows = pa.RecordBatch.from_pydict(columns)
        names = self._batch.column("topic").dictionary_encode()
        place = names.indices.to_numpy()
        order = np.argsort(place, kind="stable")
        ends = np.cumsum(np.bincount(place))
        for topic, mine in zip(names.dictionary.to_pylist(), np.split(order, ends[:-1]), strict=True):
            # Copied, not sliced: a topic with few rows would keep whole batches in memory.
            some = rows.take(pa.array(mine))
            yield topic, dict(zip(some.schema.names, some.columns, strict=True))


def check_partitions(rows: RowBatch, counts: Mapping[str, int]) -> None:
    """Check that all partitions in the column exist. Raises RowError."""
    if rows.partition_column is None:
        return
    if rows.topic is not None:
        groups = [(rows.topic, rows.partition_column)]
    else:
        names = pa.array(rows.topics, pa.string())
        groups = [(t, rows.partition_column.filter(pc.equal(names, t))) for t in set(rows.topics or ())]
    for name, asked in groups:
        bounds = pc.min_max(asked).as_py()
        for partition in (bounds["min"], bounds["max"]):
            if partition is not None and not 0 <= partition < counts[name]:
                raise stop("EOS_ROW_INVALID.partition", topic=name, partition=partition, partitions=counts[name])


def _topics(batch: pa.RecordBatch, rows: int) -> list[str]:
    column = batch.column("topic")
    if column.null_count:
        raise stop("EOS_ROW_INVALID.topic_null", nulls=column.null_count, rows=rows)
    names = column.dictionary_encode()
    topics = [_decoded(name) for name in names.dictionary.cast(pa.binary()).to_pylist()]
    return [topics[place] for place in names.indices.to_pylist()]


def _decoded(name: bytes) -> str:
    """Decode a text of Spark's, which may be any bytes."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise _no_topic(name) from None


def check_topic_names(topics: Iterable[str]) -> None:
    """Raise RowError for a name that no topic can have."""
    for name in topics:
        if not is_topic_name(name):
            raise _no_topic(name.encode())


def _no_topic(name: bytes) -> EosError:
    return stop("EOS_ROW_INVALID.topic_name", topic=excerpt(name, _SHOWN))


def _checked_headers(column: pa.Array) -> pa.Array:
    """Raise RowError for a header that no record can have."""
    each = _each_header(column)
    keys = each.field("key")
    if each.null_count or keys.null_count:
        raise stop("EOS_ROW_INVALID.header_null")
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        wrong = next(key for key in keys.cast(pa.binary()).to_pylist() if key.decode(errors="replace").encode() != key)
        raise stop("EOS_ROW_INVALID.header_key", key=excerpt(wrong, _SHOWN)) from None
    return column


def _each_header(column: pa.Array) -> pa.StructArray:
    return (column.dictionary if isinstance(column, pa.DictionaryArray) else column).flatten()


def _as_bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        return column
    return column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
