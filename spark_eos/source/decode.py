"""Decodes a Fetch response to Arrow, without a Python object per row. No I/O.

Whole record batches are verified, skipped or decompressed (`kafka.records.batches`), the fields of their records are
found as arrays (`kafka.records.fields`), and Arrow copies keys and values directly from the response
(`kafka.records.columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import EosError, stop
from spark_eos.kafka.records.batches import Damage, RecordBatch, TooLargeBatch, UnsupportedFormat, find_batches
from spark_eos.kafka.records.columns import RecordGroup, Records, groups, read_records
from spark_eos.kafka.records.fields import RecordFields, read_headers
from spark_eos.source.schema import ARROW_HEADERS, arrow_schema

T = TypeVar("T")

#: The latest timestamp, in milliseconds since 1970, that fits into Spark's 64 bits of microseconds; the earliest one is
#: its negative.
_LAST_MILLISECOND = (2**63 - 1) // 1000


@dataclass(frozen=True)
class DecodedRows:
    """Rows of a Fetch response. ``batches`` are decoded lazily; ``next_offset`` is where the next fetch begins."""

    batches: Iterator[pa.RecordBatch]
    next_offset: int


def decode(
    data: bytes | bytearray,
    range_: OffsetRange,
    aborted: Iterable[tuple[int, int]] = (),
    *,
    begin: int = 0,
    size: int | None = None,
    with_headers: bool = False,
    see: Callable[[RecordBatch], None] | None = None,
    most_bytes: int | None = None,
) -> DecodedRows:
    """Return the rows of a range in a Fetch response's records (v2 record batches, the last one possibly truncated).

    ``begin`` and ``size``: where in the data the records are, by default all of it; they must not change before the
    last batch is decoded. ``most_bytes``: of a batch, decompressed. ``aborted``: the response's aborted transactions,
    as (producer id, first offset); none for read_uncommitted. The batches are of `arrow_schema`. Raises KafkaError
    (EOS_SOURCE_DAMAGED), immediately or with a batch; rows before that are valid. So are rows before
    EOS_SOURCE_BATCH_TOO_LARGE and EOS_SOURCE_TIMESTAMP, which come with a batch. Raises immediately: KafkaError
    (EOS_SOURCE_FETCH) for a format that this client does not know; and OtherEpoch if ``see`` does, which is called as
    by `find_batches`.
    """
    try:
        batches, next_offset = find_batches(
            data, len(data) - begin if size is None else size, range_.start, range_.end, aborted, see, begin
        )
    except Damage as damage:
        raise damaged(range_, range_.start, damage) from damage
    return DecodedRows(_decode_groups(data, batches, range_, with_headers, most_bytes), next_offset)


def _decode_groups(
    data: bytes | bytearray,
    batches: list[RecordBatch],
    range_: OffsetRange,
    with_headers: bool,
    most_bytes: int | None,
) -> Iterator[pa.RecordBatch]:
    for rows in read_groups(
        data, batches, range_, lambda group: _decode_group(group, range_, with_headers), most_bytes
    ):
        if rows.num_rows:
            yield rows


def read_groups(
    data: bytes | bytearray,
    batches: Sequence[RecordBatch],
    range_: OffsetRange,
    read: Callable[[RecordGroup], T],
    most_bytes: int | None = None,
) -> Iterator[T]:
    """Yield the results of ``read`` for the record batches in ``data``, group by group.

    Raises KafkaError: EOS_SOURCE_DAMAGED for damaged batches or records, EOS_SOURCE_BATCH_TOO_LARGE for a batch that
    has more than ``most_bytes`` when it is decompressed.
    """
    at = batches[0].base if batches else range_.start
    try:
        for group in groups(data, batches, most_bytes):
            at, behind = group.batches[0].base, group.batches[-1].last + 1
            result = read(group)
            del group  # which may be large, before the next one is decompressed
            yield result
            at = behind
    except Damage as damage:
        raise damaged(range_, at, damage) from damage


def _decode_group(group: RecordGroup, range_: OffsetRange, with_headers: bool) -> pa.RecordBatch:
    records = read_records(group)
    rows = slice(*np.searchsorted(records.offsets, (range_.start, range_.end)))
    count = len(records.offsets)
    keys, values = records.keys_and_values()
    columns = [
        keys,
        values,
        pa.repeat(range_.topic, count),
        pa.repeat(pa.scalar(range_.partition, pa.int32()), count),
        pa.array(records.offsets),
        *_times(records, rows, range_),
    ]
    if with_headers:
        columns.append(_headers(records.data, records.fields))
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(with_headers))
    return batch.slice(rows.start, rows.stop - rows.start)


def _times(records: Records, rows: slice, range_: OffsetRange) -> tuple[pa.Array, pa.Array]:
    """Return the columns ``timestamp`` and ``timestampType`` (0: set by the producer, 1: by the broker) of all records.

    Raises KafkaError (EOS_SOURCE_TIMESTAMP) if one of ``rows``, the records of the range, has a timestamp that Spark
    cannot hold.
    """
    millis, by_broker = records.times_ms()
    of_range = millis[rows]
    if of_range.max(initial=0) > _LAST_MILLISECOND or of_range.min(initial=0) < -_LAST_MILLISECOND:
        raise beyond_spark(range_.topic, range_.partition, records.offsets[rows], of_range)
    return pa.array(millis * 1000).view(pa.timestamp("us", tz="UTC")), pa.array(by_broker.astype(np.int32))


def _headers(data: bytes | bytearray, fields: RecordFields) -> pa.Array:
    """Return the column ``headers``. Only records with headers cost Python per row."""
    rows = np.flatnonzero(fields.header_count)
    headers: list[list[dict[str, str | bytes | None]] | None] = [None] * len(fields.ends)
    places = (fields.header_at[rows].tolist(), fields.ends[rows].tolist(), fields.header_count[rows].tolist())
    for row, at, end, count in zip(rows.tolist(), *places, strict=True):
        headers[row] = [{"key": key, "value": value} for key, value in read_headers(data, at, end, count)]
    return pa.array(headers, ARROW_HEADERS.type)


def beyond_spark(topic: str, partition: int, offsets: np.ndarray, millis: np.ndarray) -> EosError:
    """Return the error for the first of these timestamps that Spark cannot hold. At least one must be such."""
    first = int(((millis > _LAST_MILLISECOND) | (millis < -_LAST_MILLISECOND)).argmax())
    offset, at = int(offsets[first]), int(millis[first])
    return stop("EOS_SOURCE_TIMESTAMP", topic=topic, partition=partition, offset=offset, timestamp=at)


def damaged(range_: OffsetRange, offset: int, damage: Damage | str) -> EosError:
    """Return the error for bytes that are damaged or of an unknown format from ``offset`` on, or for a record batch
    that is too large."""
    if isinstance(damage, TooLargeBatch):
        return _too_large(range_, damage)
    if isinstance(damage, UnsupportedFormat):
        return stop(
            "EOS_SOURCE_FETCH.format", topic=range_.topic, partition=range_.partition, offset=offset, format=damage
        )
    return stop(
        "EOS_SOURCE_DAMAGED.source", topic=range_.topic, partition=range_.partition, offset=offset, damage=damage
    )


def _too_large(range_: OffsetRange, batch: TooLargeBatch) -> EosError:
    return stop(
        "EOS_SOURCE_BATCH_TOO_LARGE.source",
        topic=range_.topic,
        partition=range_.partition,
        offset=batch.base,
        last=batch.last,
        max_bytes=batch.most,
    )
