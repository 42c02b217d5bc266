"""Confluent's wire format: which schema each value of a column was written with, by its first bytes or by its header.

::

    before the value:    0 · id (4 bytes, big-endian) · [message indexes] · value
    in a header:         1 · GUID (16 bytes) · [message indexes]            (or as above, without the value)

Only Protobuf has message indexes: their number, then each, as zigzag varints. They are the path from the file's
messages to a nested one; a single 0 stands for [0], the file's first message.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.pipelines.registry.avro.defaults import long_bytes

#: Headers with the schema of the key and of the value.
KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"
#: By column.
HEADERS = {"key": KEY_HEADER, "value": VALUE_HEADER}
_ID_SIZE, _GUID_SIZE = 5, 17
#: The deepest nested message that is supported.
_MOST_INDEXES = 16
#: The largest size in bytes of a varint of 32 bits.
_VARINT_SIZE = 5

TOO_SHORT = "it has less than the 5 bytes of magic byte and schema id"
NO_MAGIC = "its first byte is not 0, so no schema id follows"
BAD_INDEXES = "its message indexes are not in the format"
BAD_HEADER = "its header with the schema id is not in the format"


@dataclass(frozen=True)
class WriterKey:
    """A writer's schema by its ``id`` or ``guid``; ``message``: the indexes of a Protobuf message, otherwise empty."""

    id: int = -1
    guid: str = ""
    message: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The GUID or the id, without the message."""
        return self.guid or str(self.id)

    def __str__(self) -> str:
        name = f"schema {self.guid}" if self.guid else f"schema id {self.id}"
        return f"{name}, message {list(self.message)}" if self.message else name


@dataclass(frozen=True)
class Split:
    """The values of a column by writer. ``writer[i]``: the index in ``keys`` of the writer of value i, -1 for a value
    that is null or bad; ``begin[i]``: the number of bytes before the value's own. ``bad``: value → why it is not in the
    wire format."""

    writer: np.ndarray
    keys: list[WriterKey]
    begin: np.ndarray
    bad: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Bytes:
    """Byte strings in one buffer: number i is ``data[start[i]:end[i]]``. ``there``: which are not null."""

    data: np.ndarray
    start: np.ndarray
    end: np.ndarray
    there: np.ndarray


def split(values: pa.Array, headers: pa.Array | None = None, *, key: bool = False, messages: bool = False) -> Split:
    """Find the writer of each value.

    ``values``: (large) binary; ``key``: whether these are keys. ``headers``: for each value a list of structs ``key``,
    ``value``; the last header that names the schema takes precedence over the value's own bytes. ``messages``: whether
    message indexes follow (Protobuf).
    """
    by_value = _split(bytes_of(values), messages, guids=False)
    if headers is None:
        return by_value
    named = _named_by_headers(headers, KEY_HEADER if key else VALUE_HEADER)
    if named is None:
        return by_value
    by_header = np.asarray(named.is_valid()) & np.asarray(values.is_valid())  # a tombstone has no schema
    return _merged(by_value, _split(bytes_of(named), messages, guids=True), by_header)


def prefix(id_: int, message: Sequence[int] = ()) -> bytes:
    """Return the bytes before a value of this schema. ``message``: the indexes of a Protobuf message."""
    if not message or tuple(message) == (0,):
        indexes = b"\0" if message else b""
    else:
        indexes = b"".join(map(long_bytes, (len(message), *message)))
    return b"\0" + id_.to_bytes(4, "big") + indexes


def without_headers(headers: pa.Array, names: Collection[str]) -> pa.Array:
    """Remove the headers of these names, which would say that an encoded value has another schema. ``headers``: a
    column like the source's."""
    pairs = headers.flatten()
    keep = ~pc.is_in(pairs.field("key"), pa.array(names)).to_numpy(False)
    if keep.all():
        return headers
    lane = np.asarray(pc.list_parent_indices(headers))[keep]
    offsets = np.searchsorted(lane, np.arange(len(headers) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pairs.filter(pa.array(keep)), mask=headers.is_null())


def bytes_of(values: pa.Array) -> Bytes:
    """Return the bytes of a column of (large) binary or (large) string."""
    count = len(values)
    wide = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    validity, offsets, data = values.buffers()
    del validity  # `is_valid` knows about slices
    number = np.int64 if wide else np.int32
    ends = np.frombuffer(offsets, number)[values.offset : values.offset + count + 1] if count else np.zeros(1, number)
    bytes_ = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return Bytes(bytes_, ends[:-1].astype(np.int64), ends[1:].astype(np.int64), np.asarray(values.is_valid()))


def _split(texts: Bytes, messages: bool, *, guids: bool) -> Split:
    """Find the writers by the first bytes of each text. ``guids``: whether it may be a GUID, as in headers."""
    sizes = texts.end - texts.start
    magic = _at(texts, texts.start, texts.there & (sizes > 0))
    by_id = texts.there & (sizes >= _ID_SIZE) & (magic == 0)
    by_guid = texts.there & (sizes >= _GUID_SIZE) & (magic == 1) & guids
    ids = np.full(len(sizes), -1, np.int64)
    if by_id.any():
        ids[by_id] = _ids(texts, by_id)
    names, guid_codes = _guids(texts, by_guid)
    begin = np.where(by_id, _ID_SIZE, np.where(by_guid, _GUID_SIZE, 0)).astype(np.int64)
    bad: dict[int, str] = {}
    for where in np.flatnonzero(texts.there & ~by_id & ~by_guid).tolist():
        bad[where] = BAD_HEADER if guids else TOO_SHORT if sizes[where] < _ID_SIZE else NO_MAGIC
    paths: list[tuple[int, ...]] = [()]
    codes = np.zeros(len(sizes), np.int64)
    good = by_id | by_guid
    if messages and good.any():
        paths, codes, begin, wrong = _messages(texts, good, begin)
        bad |= dict.fromkeys(np.flatnonzero(wrong).tolist(), BAD_INDEXES)
        good &= ~wrong
    return _grouped(good, ids, (names, guid_codes), (paths, codes), begin, bad)


def _at(texts: Bytes, where: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Return the byte at each position; -1 where ``there`` is false."""
    bytes_ = np.full(len(where), -1, np.int64)
    bytes_[there] = texts.data[where[there]]
    return bytes_


def _ids(texts: Bytes, rows: np.ndarray) -> np.ndarray:
    # The numbers are not aligned: a void type can be read at any position.
    words = np.ndarray((len(texts.data) - 3,), "V4", texts.data, strides=(1,))
    numbers: np.ndarray = words[texts.start[rows] + 1].view(">u4").astype(np.int64)
    return numbers


def _guids(texts: Bytes, rows: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Return the distinct GUIDs after an empty one, and for each text the index of its GUID; 0 for a text without
    one."""
    codes = np.zeros(len(rows), np.int64)
    if not rows.any():
        return [""], codes
    places = texts.start[rows][:, None] + np.arange(1, _GUID_SIZE)
    different, inverse = np.unique(texts.data[places], axis=0, return_inverse=True)
    codes[rows] = inverse.reshape(-1) + 1
    return ["", *(str(UUID(bytes=guid.tobytes())) for guid in different)], codes


def _messages(
    texts: Bytes, rows: np.ndarray, begin: np.ndarray
) -> tuple[list[tuple[int, ...]], np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct paths of message indexes, and for each text: the index of its path, the number of bytes
    before the value's own, and whether the path is not in the format."""
    count, begin, fits = _varint(texts, begin, rows)
    wrong = rows & ~(fits & (count >= 0) & (count <= _MOST_INDEXES))
    left = rows & ~wrong
    if not count[left].any():  # the file's first message, as in most topics
        return [(0,)], np.zeros(len(rows), np.int64), begin, wrong
    indexes = np.full((len(rows), _MOST_INDEXES), -1, np.int64)
    indexes[left & (count == 0), 0] = 0
    for column in range(int(count[left].max(initial=0))):
        more = left & (count > column)
        number, begin, fits = _varint(texts, begin, more)
        wrong |= more & ~(fits & (number >= 0))
        left &= ~wrong
        indexes[more, column] = number[more]
    first, codes = _distinct([indexes[:, column] for column in range(max(int(count[left].max(initial=0)), 1))])
    paths = [tuple(number for number in path.tolist() if number >= 0) for path in indexes[first]]
    return paths, codes, begin, wrong


def _varint(texts: Bytes, begin: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the zigzag varint of each of the rows, the position of the next byte, and whether there was a varint."""
    value, begin = np.zeros(len(begin), np.int64), begin.copy()
    left, fits = rows.copy(), np.zeros(len(begin), bool)
    for shift in range(0, 7 * _VARINT_SIZE, 7):
        left &= texts.start + begin < texts.end
        if not left.any():
            break
        byte = _at(texts, texts.start + begin, left)
        value[left] |= (byte[left] & 0x7F) << shift
        begin[left] += 1
        done = left & (byte < 0x80)
        fits |= done
        left &= ~done
    return (value >> 1) ^ -(value & 1), begin, fits


def _distinct(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the first row of each distinct combination, and for each row the number of its combination.
    Columns are sorted one by one, as numpy takes ten times as long to sort rows."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if (column != column[0]).any():
            numbers, inverse = np.unique(column, return_inverse=True)
            # Numbered again, so that the product stays small.
            _, code = np.unique(code * len(numbers) + inverse, return_inverse=True)
    if not code.any():  # one combination, as in most topics
        return np.zeros(1, np.int64), code
    _, first = np.unique(code, return_index=True)
    return first, code


def _grouped(
    good: np.ndarray,
    ids: np.ndarray,
    guids: tuple[list[str], np.ndarray],
    paths: tuple[list[tuple[int, ...]], np.ndarray],
    begin: np.ndarray,
    bad: dict[int, str],
) -> Split:
    writer = np.full(len(good), -1, np.int64)
    if not good.any():
        return Split(writer, [], begin, bad)
    parts = ids[good], guids[1][good], paths[1][good]
    first, writer[good] = _distinct(parts)
    different = zip(*(part[first].tolist() for part in parts), strict=True)
    keys = [WriterKey(id_, guids[0][guid], paths[0][path]) for id_, guid, path in different]
    return Split(writer, keys, begin, bad)


def _named_by_headers(headers: pa.Array, name: str) -> pa.Array | None:
    """Return for each list of headers the value of the last header of that name, or null; None where no list has one. A
    program that passes headers on, and serializes anew, appends a second one."""
    pairs = headers.flatten()
    named = pc.and_(pc.equal(pairs.field("key"), name), pc.is_valid(pairs.field("value")))
    places = np.flatnonzero(pc.fill_null(named, False).to_numpy(zero_copy_only=False))
    if not len(places):
        return None
    last = np.full(len(headers), -1, np.int64)
    # Of several assignments to one index, numpy keeps the last.
    last[np.asarray(pc.list_parent_indices(headers))[places]] = places
    return pairs.field("value").take(pa.array(last, mask=last < 0))


def _merged(values: Split, headers: Split, by_header: np.ndarray) -> Split:
    """Return the split by headers where ``by_header``, and there all bytes are the value's own; else the split by
    values."""
    moved = np.where(headers.writer < 0, -1, headers.writer + len(values.keys))
    writer, begin = np.where(by_header, moved, values.writer), np.where(by_header, 0, values.begin)
    bad = {row: reason for row, reason in values.bad.items() if not by_header[row]}
    bad |= {row: reason for row, reason in headers.bad.items() if by_header[row]}
    return Split(writer, [*values.keys, *headers.keys], begin, bad)
