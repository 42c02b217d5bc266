"""Which schema each value was written with: the bytes before it, or its header, for all values of a column at once.

::

    before the value:    0 · id (4 bytes, big-endian) · [message indexes] · value
    in a header:         1 · GUID (16 bytes) · [message indexes]            (or as above, without the value)

Only Protobuf has message indexes: how many there are, then each, as zigzag varints. They lead from the file's messages
to a nested one; a single 0 stands for [0], the file's first message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Headers that name the schema of a key and a value.
KEY_HEADER, VALUE_HEADER = "__key_schema_id", "__value_schema_id"
_ID_SIZE, _GUID_SIZE = 5, 17
#: A message that lies deeper in others than this is not looked for.
_MOST_INDEXES = 16
#: Bytes of a varint of 32 bits.
_VARINT_SIZE = 5

TOO_SHORT = "it has less than the 5 bytes of magic byte and schema id"
NO_MAGIC = "its first byte is not 0, so no schema id follows"
BAD_INDEXES = "its message indexes are not in the format"
BAD_HEADER = "its header with the schema id is not in the format"


@dataclass(frozen=True, order=True)
class WriterKey:
    """What names the writer's schema: an ``id`` or a ``guid``; ``message``: Protobuf's indexes, otherwise empty."""

    id: int = -1
    guid: str = ""
    message: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The id or the GUID, whichever message it is."""
        return self.guid or str(self.id)

    def __str__(self) -> str:
        name = f"schema {self.guid}" if self.guid else f"schema id {self.id}"
        return f"{name}, message {list(self.message)}" if self.message else name


@dataclass(frozen=True)
class Split:
    """A column's values by writer: ``writer[i]`` is the place in ``keys`` of value i, or -1 for a value that is null or
    bad; ``begin[i]``: bytes before the value's own. ``bad``: the reason for each value that is not in the format."""

    writer: np.ndarray
    keys: list[WriterKey]
    begin: np.ndarray
    bad: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Bytes:
    """Texts of bytes in one buffer: text i is ``data[start[i]:end[i]]``. ``there``: those that are not null."""

    data: np.ndarray
    start: np.ndarray
    end: np.ndarray
    there: np.ndarray


def split(values: pa.Array, headers: pa.Array | None = None, *, key: bool = False, messages: bool = False) -> Split:
    """``values``: (large) binary. ``headers``: lists of structs ``key``, ``value``, one for each value; the first one
    that names the schema goes before the value's own bytes. ``key``: whether these are keys. ``messages``: whether
    message indexes follow (Protobuf)."""
    found = _split(bytes_of(values), messages, guids=False)
    if headers is None:
        return found
    named = _named_by_headers(headers, KEY_HEADER if key else VALUE_HEADER)
    if named is None:
        return found
    # A tombstone stays one, whatever its header says.
    own = np.asarray(named.is_valid()) & np.asarray(values.is_valid())
    return _merged(found, _split(bytes_of(named), messages, guids=True), own)


def prefix(id_: int, message: Sequence[int] = ()) -> bytes:
    """The bytes before a value that is written with this schema."""
    return b"\0" + id_.to_bytes(4, "big") + _indexes(message)


def guid_header(guid: str, message: Sequence[int] = ()) -> bytes:
    """The header's value for a value that is written with this schema."""
    return b"\1" + UUID(guid).bytes + _indexes(message)


def _indexes(message: Sequence[int]) -> bytes:
    if not message or tuple(message) == (0,):
        return b"\0" if message else b""
    return b"".join(_zigzag(number) for number in (len(message), *message))


def _zigzag(number: int) -> bytes:
    """As a varint; the number is not negative."""
    number <<= 1
    pieces = []
    while number > 0x7F:
        pieces.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*pieces, number])


def bytes_of(values: pa.Array) -> Bytes:
    """Of (large) binary, or of text."""
    count = len(values)
    wide = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    validity, offsets, data = values.buffers()
    del validity  # `is_valid` knows about slices
    number = np.int64 if wide else np.int32
    ends = np.frombuffer(offsets, number)[values.offset : values.offset + count + 1] if count else np.zeros(1, number)
    bytes_ = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return Bytes(bytes_, ends[:-1].astype(np.int64), ends[1:].astype(np.int64), np.asarray(values.is_valid()))


def _split(texts: Bytes, messages: bool, *, guids: bool) -> Split:
    """By the bytes at each text's beginning. ``guids``: whether a GUID may be there, as in headers."""
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
    """The byte at each place; -1 where it is not ``there``."""
    found = np.full(len(where), -1, np.int64)
    found[there] = texts.data[where[there]]
    return found


def _ids(texts: Bytes, rows: np.ndarray) -> np.ndarray:
    # A void type is copied as it lies, wherever that is; the numbers are not aligned.
    words = np.ndarray((len(texts.data) - 3,), "V4", texts.data, strides=(1,))
    numbers: np.ndarray = words[texts.start[rows] + 1].view(">u4").astype(np.int64)
    return numbers


def _guids(texts: Bytes, rows: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The different GUIDs, and for each text the place of its own, from 1 on; 0 where it has none."""
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
    """The different paths of indexes; for each text the place of its own, where its bytes begin after them, and whether
    they are not in the format."""
    count, begin, fits = _varint(texts, begin, rows)
    wrong = rows & ~(fits & (count >= 0) & (count <= _MOST_INDEXES))
    left = rows & ~wrong
    if not count[left].any():  # as a rule: the file's first message, and nothing to sort
        return [(0,)], np.zeros(len(rows), np.int64), begin, wrong
    found = np.full((len(rows), _MOST_INDEXES), -1, np.int64)
    found[left & (count == 0), 0] = 0
    for column in range(int(count[left].max(initial=0))):
        more = left & (count > column)
        number, begin, fits = _varint(texts, begin, more)
        wrong |= more & ~(fits & (number >= 0))
        left &= ~wrong
        found[more, column] = number[more]
    first, codes = _distinct([found[:, column] for column in range(max(int(count[left].max(initial=0)), 1))])
    paths = [tuple(number for number in path.tolist() if number >= 0) for path in found[first]]
    return paths, codes, begin, wrong


def _varint(texts: Bytes, begin: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The zigzag varint of each of the rows, where the next byte is, and whether there was one."""
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
    """The places of the first rows of each kind, and for each row the number of its kind. Numbers are sorted column by
    column, as numpy takes ten times as long for rows."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if (column != column[0]).any():
            numbers, inverse = np.unique(column, return_inverse=True)
            # Again, so that the product stays small.
            _, code = np.unique(code * len(numbers) + inverse, return_inverse=True)
    if not code.any():  # as a rule: one kind, and nothing to sort
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
    """For each list of headers the value of the first one of that name, or null; None where no list has one."""
    pairs = headers.flatten()
    places = np.flatnonzero(pc.fill_null(pc.equal(pairs.field("key"), name), False).to_numpy(zero_copy_only=False))
    if not len(places):
        return None
    parents, first = np.unique(np.asarray(pc.list_parent_indices(headers))[places], return_index=True)
    found = np.full(len(headers), -1, np.int64)
    found[parents] = places[first]
    return pairs.field("value").take(pa.array(found, mask=found < 0))


def _merged(by_value: Split, by_header: Split, own: np.ndarray) -> Split:
    """Where ``own``, what the header says; there the value has no bytes before its own."""
    keys = [*by_value.keys, *by_header.keys]
    moved = np.where(by_header.writer < 0, -1, by_header.writer + len(by_value.keys))
    bad = {row: reason for row, reason in by_value.bad.items() if not own[row]}
    bad |= {row: reason for row, reason in by_header.bad.items() if own[row]}
    writer = np.where(own, moved, by_value.writer)
    return replace(by_value, writer=writer, keys=keys, begin=np.where(own, 0, by_value.begin), bad=bad)
