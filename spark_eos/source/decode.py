"""Decodes a Fetch response to Arrow, without a Python object per row. No I/O.

Whole record batches are verified, skipped or decompressed (`kafka.records.batches`), the fields of their records are
found as arrays (`kafka.records.fields`), and Arrow copies keys and values directly from the response.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_eos.errors import KafkaError
from spark_eos.kafka.records.batches import Damage, RecordBatch, decompress, find_batches
from spark_eos.kafka.records.fields import Fields, find_records, read_fields, read_headers
from spark_eos.source.planning import OffsetRange
from spark_eos.source.schema import ARROW_HEADERS, arrow_schema

#: Record batches are decoded together up to this many rows or bytes. Much more does not fit into the processor's
#: caches.
_GROUP_ROWS = 8192
_GROUP_BYTES = 1024 * 1024

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
    for group in _groups(found):
        try:
            batch = _decode_group(data, group, range_, with_headers)
        except Damage as damage:
            raise damaged(range_, group[0].base, damage) from damage
        if batch.num_rows:
            yield batch


def _groups(found: Iterable[RecordBatch]) -> Iterator[list[RecordBatch]]:
    """Batches that follow one another, either all compressed or none."""
    group: list[RecordBatch] = []
    rows = size = 0
    for batch in found:
        full = rows >= _GROUP_ROWS or size >= _GROUP_BYTES
        if group and (full or bool(group[0].codec) != bool(batch.codec)):
            yield group
            group, rows, size = [], 0, 0
        group.append(batch)
        rows, size = rows + batch.count, size + batch.stop - batch.start
    if group:
        yield group


def _decode_group(
    data: bytes | bytearray, group: list[RecordBatch], range_: OffsetRange, with_headers: bool
) -> pa.RecordBatch:
    data, places = _sections(data, group)
    parts = [find_records(data, start, stop, batch.count) for batch, (start, stop) in zip(group, places, strict=True)]
    raw = np.frombuffer(data, np.uint8)
    fields = read_fields(raw, np.concatenate(parts), _ends(parts, places))
    offsets = _offsets(group, fields)
    rows = slice(*np.searchsorted(offsets, (range_.start, range_.end)))
    count = len(offsets)
    buffer = pa.py_buffer(data)
    keys, values = _keys_and_values(buffer, fields)
    columns = [
        keys,
        values,
        pa.repeat(range_.topic, count),
        pa.repeat(pa.scalar(range_.partition, pa.int32()), count),
        pa.array(offsets),
        *_times(group, fields),
    ]
    if with_headers:
        columns.append(_headers(data, fields))
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(with_headers))
    return batch.slice(rows.start, rows.stop - rows.start)


def _sections(data: bytes | bytearray, group: list[RecordBatch]) -> tuple[bytes | bytearray, list[tuple[int, int]]]:
    """Bytes with the records of the batches, decompressed, and where in them those of each batch begin and end."""
    if not group[0].codec:
        return data, [(batch.start, batch.stop) for batch in group]
    view = memoryview(data)
    sections = [decompress(view[batch.start : batch.stop], batch.codec) for batch in group]
    ends = np.cumsum([len(section) for section in sections]).tolist()
    joined = sections[0] if len(sections) == 1 else b"".join(sections)
    return joined, list(zip([0, *ends[:-1]], ends, strict=True))


def _ends(parts: Sequence[np.ndarray], places: Sequence[tuple[int, int]]) -> np.ndarray:
    """Where records end: where the next one begins, or their batch ends."""
    return np.concatenate([np.append(begins[1:], stop) for begins, (_, stop) in zip(parts, places, strict=True)])


def _offsets(group: list[RecordBatch], fields: Fields) -> np.ndarray:
    """The offsets of the records. They grow, and lie in those of their batch. Raises Damage."""
    counts = [batch.count for batch in group]
    offsets: np.ndarray = np.repeat([batch.base for batch in group], counts) + fields.offset_delta
    lasts = np.cumsum(counts) - 1
    firsts = np.append(0, lasts[:-1] + 1)
    if (
        (np.diff(offsets) <= 0).any()
        or (offsets[firsts] < [batch.base for batch in group]).any()
        or (offsets[lasts] > [batch.last for batch in group]).any()
    ):
        raise Damage("offsets of records are out of order")
    return offsets


def _times(group: list[RecordBatch], fields: Fields) -> tuple[pa.Array, pa.Array]:
    """Timestamp and its type: 0 where the writer gave it, 1 where the broker did. Raises Damage."""
    counts = [batch.count for batch in group]
    given = [batch.append_time is None for batch in group]
    millis = np.repeat([b.time if b.append_time is None else b.append_time for b in group], counts)
    millis += fields.time_delta if all(given) else np.where(np.repeat(given, counts), fields.time_delta, 0)
    if millis.max() > _LAST_MILLISECOND or millis.min() < -_LAST_MILLISECOND:
        raise Damage("a timestamp is beyond what Spark can hold")
    kinds = np.repeat(np.array([not own for own in given], np.int32), counts)
    return pa.array(millis * 1000).view(pa.timestamp("us", tz="UTC")), pa.array(kinds)


def _keys_and_values(buffer: pa.Buffer, fields: Fields) -> tuple[pa.Array, pa.Array]:
    """Both as binary. The buffer is seen as an array of key, gap, value, gap, … and Arrow takes out what is wanted."""
    count = len(fields.ends)
    cuts = np.empty((count, 4), np.int32)
    cuts[:, 0] = fields.key_at
    cuts[:, 1] = fields.key_at + np.maximum(fields.key_size, 0)
    cuts[:, 2] = fields.value_at
    cuts[:, 3] = fields.value_at + np.maximum(fields.value_size, 0)
    pieces = pa.Array.from_buffers(pa.binary(), 4 * count - 1, [None, pa.py_buffer(cuts), buffer])
    return _take(pieces, 0, fields.key_size), _take(pieces, 2, fields.value_size)


def _take(pieces: pa.Array, first: int, sizes: np.ndarray) -> pa.Array:
    count = len(sizes)
    null = sizes < 0
    if null.all():
        return pa.nulls(count, pa.binary())
    places = np.arange(first, first + 4 * count, 4)
    return pieces.take(pa.array(places, mask=null if null.any() else None))


def _headers(data: bytes | bytearray, fields: Fields) -> pa.Array:
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
