"""Decodes a Fetch response to Arrow, without a Python object per row. No I/O.

Whole record batches are verified, skipped or decompressed (`kafka.records.batches`), the fields of their records are
found as arrays (`kafka.records.fields`), and Arrow copies keys and values directly from the response
(`kafka.records.columns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_eos.errors import KafkaError
from spark_eos.kafka.records.batches import Damage, RecordBatch, find_batches
from spark_eos.kafka.records.columns import Records, groups, read_records
from spark_eos.kafka.records.fields import RecordFields, read_headers
from spark_eos.source.planning import OffsetRange
from spark_eos.source.schema import ARROW_HEADERS, arrow_schema

_LAST_MILLISECOND = (2**63 - 1) // 1000


@dataclass(frozen=True)
class Decoded:
    """``batches``: the rows, decoded lazily. ``next_offset``: where the next fetch begins."""

    batches: Iterator[pa.RecordBatch]
    next_offset: int


def decode(
    data: bytes | bytearray,
    range_: OffsetRange,
    aborted: Iterable[tuple[int, int]] = (),
    *,
    size: int | None = None,
    with_headers: bool = False,
) -> Decoded:
    """The rows of a range in a Fetch response's records (v2 record batches, the last one possibly truncated).

    ``size``: how many bytes of the data are valid, by default all; they must not change before the last batch is
    decoded. ``aborted``: the response's aborted transactions, as (producer id, first offset); none for
    read_uncommitted. The batches are of `arrow_schema`. Raises KafkaError (EOS_SOURCE_DAMAGED), immediately or with a
    batch; rows before that are valid. Raises UnsupportedFormat, immediately, for formats that only librdkafka reads.
    """
    try:
        found, next_offset = find_batches(data, len(data) if size is None else size, range_.start, range_.end, aborted)
    except Damage as damage:
        raise damaged(range_, range_.start, damage) from damage
    return Decoded(_decode_groups(data, found, range_, with_headers), next_offset)


def _decode_groups(
    data: bytes | bytearray, found: list[RecordBatch], range_: OffsetRange, with_headers: bool
) -> Iterator[pa.RecordBatch]:
    for group in groups(found):
        try:
            batch = _decode_group(data, group, range_, with_headers)
        except Damage as damage:
            raise damaged(range_, group[0].base, damage) from damage
        if batch.num_rows:
            yield batch


def _decode_group(
    data: bytes | bytearray, group: list[RecordBatch], range_: OffsetRange, with_headers: bool
) -> pa.RecordBatch:
    records = read_records(data, group)
    rows = slice(*np.searchsorted(records.offsets, (range_.start, range_.end)))
    count = len(records.offsets)
    keys, values = records.keys_and_values()
    columns = [
        keys,
        values,
        pa.repeat(range_.topic, count),
        pa.repeat(pa.scalar(range_.partition, pa.int32()), count),
        pa.array(records.offsets),
        *_times(records),
    ]
    if with_headers:
        columns.append(_headers(records.data, records.fields))
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(with_headers))
    return batch.slice(rows.start, rows.stop - rows.start)


def _times(records: Records) -> tuple[pa.Array, pa.Array]:
    """Timestamp and its type: 0 where the writer gave it, 1 where the broker did. Raises Damage."""
    millis, by_broker = records.times_ms()
    if millis.max() > _LAST_MILLISECOND or millis.min() < -_LAST_MILLISECOND:
        raise Damage("a timestamp is beyond what Spark can hold")
    return pa.array(millis * 1000).view(pa.timestamp("us", tz="UTC")), pa.array(by_broker.astype(np.int32))


def _headers(data: bytes | bytearray, fields: RecordFields) -> pa.Array:
    """Row by row, but only of those that have some."""
    rows = np.flatnonzero(fields.header_count)
    headers: list[list[dict[str, str | bytes | None]] | None] = [None] * len(fields.ends)
    places = (fields.header_at[rows].tolist(), fields.ends[rows].tolist(), fields.header_count[rows].tolist())
    for row, at, end, count in zip(rows.tolist(), *places, strict=True):
        headers[row] = [{"key": key, "value": value} for key, value in read_headers(data, at, end, count)]
    return pa.array(headers, ARROW_HEADERS.type)


def damaged(range_: OffsetRange, offset: int, damage: Damage | str) -> KafkaError:
    """The error for bytes that are not sound, from an offset on."""
    return KafkaError(
        "EOS_SOURCE_DAMAGED",
        f"The records of {range_.topic}-{range_.partition} from offset {offset} on are damaged: {damage}.",
        hint="A restart fetches them again. If the error recurs, the log of the partition's leader is damaged: make "
        "another replica the leader.",
        topic=range_.topic,
        partition=range_.partition,
        offset=offset,
    )
