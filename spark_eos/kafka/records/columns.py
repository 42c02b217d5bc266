"""The records of verified batches as columns, thousands of them at once, without a Python object per row. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_eos.kafka.records.batches import Damage, RecordBatch, decompress
from spark_eos.kafka.records.encode import Rows, Tails
from spark_eos.kafka.records.fields import RecordFields, find_records, read_deltas, read_fields

#: Record batches are decoded together up to this many rows or bytes, decompressed, and the rest of the last batch. Much
#: more does not fit into the processor's caches.
_GROUP_ROWS = 8192
_GROUP_BYTES = 1024 * 1024


@dataclass(frozen=True)
class RecordGroup:
    """Record batches to be decoded together. ``data``: their decompressed records; ``places``: byte positions in it at
    which the records of each batch begin and end."""

    batches: Sequence[RecordBatch]
    data: bytes | bytearray
    places: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Records:
    """The records of some batches. ``data``: where their ``fields`` are; ``offsets``: n int64, ascending."""

    data: bytes | bytearray
    fields: RecordFields
    offsets: np.ndarray
    batches: Sequence[RecordBatch]

    def keys_and_values(self) -> tuple[pa.Array, pa.Array]:
        """Return the keys and the values, each as n binary."""
        f = self.fields
        key, value = _pieces(self.data, [(f.key_at, f.key_size), (f.value_at, f.value_size)])
        return key, value

    def times_ms(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the timestamps, n int64, and for each whether the broker has set it."""
        return _times_ms(self.batches, self.fields.time_delta)

    def rows(self) -> Rows:
        """Return the rows, with headers as they are encoded in the records."""
        f = self.fields
        headers_at = f.value_at + np.maximum(f.value_size, 0)
        spans = [(f.key_at, f.key_size), (f.value_at, f.value_size), (headers_at, f.ends - headers_at)]
        key, value, headers = _pieces(self.data, spans)
        return Rows(key, value, self.times_ms()[0], headers if f.header_count.any() else None)


def groups(
    data: bytes | bytearray, batches: Iterable[RecordBatch], most_bytes: int | None = None
) -> Iterator[RecordGroup]:
    """Group batches in ``data`` that follow one another: either all compressed or none.

    They are decompressed one by one until their group is full, so that little is in memory at a time; each has at most
    ``most_bytes`` then. Raises Damage, TooLargeBatch.
    """
    held: list[RecordBatch] = []
    sections: list[bytes] = []
    rows = size = 0
    for batch in batches:
        full = rows >= _GROUP_ROWS or size >= _GROUP_BYTES
        if held and (full or bool(held[0].codec) != bool(batch.codec)):
            yield _group(data, held, sections)
            held, rows, size = [], 0, 0
        if batch.codec:
            sections.append(decompress(data, batch, most_bytes))
        held.append(batch)
        rows, size = rows + batch.count, size + (len(sections[-1]) if batch.codec else batch.stop - batch.start)
    if held:
        yield _group(data, held, sections)


def _group(data: bytes | bytearray, batches: list[RecordBatch], sections: list[bytes]) -> RecordGroup:
    """Return a group of batches. ``sections``: their decompressed records, which are taken out of the list; none if
    they lie in ``data`` as they are."""
    if not sections:
        return RecordGroup(batches, data, [(batch.start, batch.stop) for batch in batches])
    ends = np.cumsum([len(section) for section in sections]).tolist()
    joined = sections[0] if len(sections) == 1 else b"".join(sections)
    sections.clear()
    return RecordGroup(batches, joined, list(zip([0, *ends[:-1]], ends, strict=True)))


def read_records(group: RecordGroup) -> Records:
    """Return the records of some batches. Raises Damage."""
    begins, ends = _find(group)
    fields = read_fields(np.frombuffer(group.data, np.uint8), begins, ends)
    return Records(group.data, fields, _offsets(group.batches, fields.offset_delta), group.batches)


def read_tails(group: RecordGroup, start: int, end: int) -> Tails:
    """Return the records of offsets ``start`` to ``end``, exclusive, in some batches, from their keys on. Raises
    Damage."""
    begins, ends = _find(group)
    time_delta, offset_delta, tail_at = read_deltas(np.frombuffer(group.data, np.uint8), begins, ends)
    offsets = _offsets(group.batches, offset_delta)
    some = slice(*np.searchsorted(offsets, (start, end)))
    (tails,) = _pieces(group.data, [(tail_at[some], (ends - tail_at)[some])])
    return Tails(tails, _times_ms(group.batches, time_delta)[0][some], offsets[some])


def _find(group: RecordGroup) -> tuple[np.ndarray, np.ndarray]:
    """Return where each record begins and ends: where the next one begins, or its batch ends."""
    placed = list(zip(group.batches, group.places, strict=True))
    parts = [find_records(group.data, start, stop, batch.count) for batch, (start, stop) in placed]
    ends = [np.append(begins[1:], stop) for begins, (_, stop) in zip(parts, group.places, strict=True)]
    return np.concatenate(parts), np.concatenate(ends)


def _times_ms(group: Sequence[RecordBatch], time_delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    counts = [batch.count for batch in group]
    given = [batch.append_time is None for batch in group]
    millis = np.repeat([b.time if b.append_time is None else b.append_time for b in group], counts)
    by_broker = np.repeat(np.logical_not(given), counts)
    millis += time_delta if all(given) else np.where(by_broker, 0, time_delta)
    return millis, by_broker


def _offsets(group: Sequence[RecordBatch], offset_delta: np.ndarray) -> np.ndarray:
    """Return the offsets of the records. They grow, and lie in the range of their batch. Raises Damage."""
    counts = [batch.count for batch in group]
    offsets: np.ndarray = np.repeat([batch.base for batch in group], counts) + offset_delta
    lasts = np.cumsum(counts) - 1
    firsts = np.append(0, lasts[:-1] + 1)
    if (
        (np.diff(offsets) <= 0).any()
        or (offsets[firsts] < [batch.base for batch in group]).any()
        or (offsets[lasts] > [batch.last for batch in group]).any()
    ):
        raise Damage("offsets of records are out of order")
    return offsets


def _pieces(data: bytes | bytearray, spans: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[pa.Array]:
    """Return a binary column for each field, given by position and size, -1 for null; positions are in this order.

    The buffer is seen as an array of field, gap, field, gap, … and Arrow takes out the fields.
    """
    count, width = len(spans[0][0]), 2 * len(spans)
    cuts = np.empty((count, width), np.int32)
    for column, (at, sizes) in enumerate(spans):
        cuts[:, 2 * column] = at
        cuts[:, 2 * column + 1] = at + np.maximum(sizes, 0)
    pieces = pa.Array.from_buffers(
        pa.binary(), max(0, width * count - 1), [None, pa.py_buffer(cuts), pa.py_buffer(data)]
    )
    return [_take(pieces, 2 * column, width, sizes) for column, (_, sizes) in enumerate(spans)]


def _take(pieces: pa.Array, first: int, step: int, sizes: np.ndarray) -> pa.Array:
    count = len(sizes)
    null = sizes < 0
    if null.all():
        return pa.nulls(count, pa.binary())
    indices = np.arange(first, first + step * count, step)
    return pieces.take(pa.array(indices, mask=null if null.any() else None))
