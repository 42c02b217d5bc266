"""Readers: each reads a value of one type from every datum, into a column of the type that is wanted. No I/O.

`resolve.py` chooses them for a writer's and a reader's schema. Arrays and maps are in `items.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa

from spark_eos.registry.avro.arrow import DURATION, DURATION_PARTS
from spark_eos.registry.avro.cursor import Cursor
from spark_eos.registry.avro.decimals import column_of, read_decimals, too_long
from spark_eos.registry.avro.schema import DURATION_BYTES, UUID_BYTES
from spark_eos.registry.avro.texts import as_texts, not_uuids, uuid_texts
from spark_eos.registry.avro.units import LONG_LEAST, LONG_MOST
from spark_eos.registry.avro.walk import WRONG, walk_long, walk_piece


class Reader(Protocol):
    """Reads a value of each lane of a cursor.

    ``type``: that of the column. ``read``: the column, with a value for each lane; lanes that fail have any value.
    ``skip``: only moves the lanes. It fails where the next value could not be found, and overlooks other mistakes.
    ``walk``: does exactly the same as ``skip`` for one datum, ``data[at:end]``: returns the position behind the value,
    or WRONG. So an array has the same items, whichever of the two finds them.
    """

    @property
    def type(self) -> pa.DataType: ...

    def read(self, cursor: Cursor) -> pa.Array: ...

    def skip(self, cursor: Cursor) -> None: ...

    def walk(self, data: bytes, at: int, end: int) -> int: ...


def _plain(type_: pa.DataType, values: np.ndarray) -> pa.Array:
    """Numbers as a column of a type with such numbers in its buffer."""
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


@dataclass(frozen=True)
class Null:
    """Reads nulls, which take no bytes."""

    type: pa.DataType

    def read(self, cursor: Cursor) -> pa.Array:
        return pa.nulls(len(cursor), self.type)

    def skip(self, cursor: Cursor) -> None:
        pass

    def walk(self, data: bytes, at: int, end: int) -> int:
        return at


@dataclass(frozen=True)
class Boolean:
    """Reads a byte, 0 or 1."""

    path: str
    type: ClassVar[pa.DataType] = pa.bool_()

    def read(self, cursor: Cursor) -> pa.Array:
        values = cursor.data.raw.take(cursor.fixed(1, self.path))
        wrong = values > 1
        if wrong.any():
            cursor.fail(wrong, f"{self.path}: a boolean is neither 0 nor 1")
        return pa.array(values != 0)

    def skip(self, cursor: Cursor) -> None:
        cursor.fixed(1, self.path)

    def walk(self, data: bytes, at: int, end: int) -> int:
        return at + 1 if at < end else WRONG


@dataclass(frozen=True)
class Integer:
    """Reads ints and longs from ``least`` to ``most``. ``what``: the name of the range; empty if any number will do.
    ``factor``: what numbers are multiplied by; within the range, this fits into 64 bits. ``numbers``: the numpy type in
    the column."""

    path: str
    type: pa.DataType
    numbers: str
    least: int = LONG_LEAST
    most: int = LONG_MOST
    factor: int = 1
    what: str = ""

    def read(self, cursor: Cursor) -> pa.Array:
        values = cursor.long(self.path)
        if self.what:
            wrong = (values < self.least) | (values > self.most)
            if wrong.any():
                cursor.fail(wrong, f"{self.path}: a number is not {self.what}")
        if self.factor != 1:
            values = values * self.factor
        return _plain(self.type, values.astype(self.numbers, copy=False))

    def skip(self, cursor: Cursor) -> None:
        cursor.long(self.path)

    def walk(self, data: bytes, at: int, end: int) -> int:
        return walk_long(data, at, end)[1]


@dataclass(frozen=True)
class Real:
    """Reads floats and doubles, as one or the other. ``stored`` and ``numbers``: their numpy types in the datum and in
    the column."""

    path: str
    type: pa.DataType
    stored: str
    numbers: str

    @property
    def size(self) -> int:
        """In bytes."""
        return int(self.stored[-1])

    def read(self, cursor: Cursor) -> pa.Array:
        values = cursor.data.words(cursor.fixed(self.size, self.path), self.stored)
        return _plain(self.type, values.astype(self.numbers, copy=False))

    def skip(self, cursor: Cursor) -> None:
        cursor.fixed(self.size, self.path)

    def walk(self, data: bytes, at: int, end: int) -> int:
        return at + self.size if at + self.size <= end else WRONG


@dataclass(frozen=True)
class Piece:
    """Finds bytes behind their size, or ``size`` bytes: what binary, string and decimals are made of."""

    path: str
    size: int | None

    def places(self, cursor: Cursor) -> tuple[np.ndarray, np.ndarray]:
        """Where they begin, and how many (n int64 each; none where a lane fails)."""
        return cursor.piece(self.path) if self.size is None else cursor.fixed_piece(self.size, self.path)

    def skip(self, cursor: Cursor) -> None:
        self.places(cursor)

    def walk(self, data: bytes, at: int, end: int) -> int:
        if self.size is None:
            return walk_piece(data, at, end)
        return at + self.size if at + self.size <= end else WRONG


@dataclass(frozen=True)
class Binary(Piece):
    """Reads bytes and fixed as they are."""

    type: ClassVar[pa.DataType] = pa.binary()

    def read(self, cursor: Cursor) -> pa.Array:
        return cursor.data.pieces(*self.places(cursor))


@dataclass(frozen=True)
class Text(Piece):
    """Reads strings, and bytes that are wanted as strings. ``uuid``: whether they have to be uuids."""

    uuid: bool = False
    type: ClassVar[pa.DataType] = pa.string()

    def read(self, cursor: Cursor) -> pa.Array:
        texts, wrong = as_texts(cursor.data.pieces(*self.places(cursor)))
        if wrong is not None:
            cursor.fail(wrong, f"{self.path}: a string is not UTF-8")
        if self.uuid:
            odd = not_uuids(texts)
            if odd.any():
                cursor.fail(odd, f"{self.path}: a string is not a uuid")
        return texts


@dataclass(frozen=True)
class Decimals(Piece):
    """Reads decimals, which are two's complements, the highest byte first. ``precision``: the digits of the writer's
    type."""

    type: pa.DataType
    precision: int

    def read(self, cursor: Cursor) -> pa.Array:
        high, low, wrong = read_decimals(cursor.data, *self.places(cursor))
        wrong |= too_long(high, low, self.precision)
        if wrong.any():
            cursor.fail(wrong, f"{self.path}: a decimal has no bytes, or more than {self.precision} digits")
            high, low = np.where(wrong, 0, high), np.where(wrong, np.uint64(0), low)
        return column_of(high, low, self.type)


@dataclass(frozen=True)
class Bundle:
    """Reads fixed values that become something else: uuids their texts, durations structs."""

    path: str
    type: pa.DataType

    @property
    def size(self) -> int:
        """In bytes."""
        return DURATION_BYTES if self.type == DURATION else UUID_BYTES

    def read(self, cursor: Cursor) -> pa.Array:
        # Words lie behind one another; those of lanes that fail, in the padding at the least.
        start = np.minimum(cursor.fixed(self.size, self.path), len(cursor.data.raw) - UUID_BYTES)
        words = [cursor.data.words(start + at, "<u4") for at in range(0, self.size, 4)]
        if self.type != DURATION:
            return uuid_texts(np.stack(words, axis=1).view(np.uint8).reshape(-1, UUID_BYTES))
        columns = [_plain(pa.int64(), part.astype(np.int64)) for part in words]
        assert len(columns) == len(DURATION_PARTS)
        return pa.Array.from_buffers(self.type, len(cursor), [None], children=columns)

    def skip(self, cursor: Cursor) -> None:
        cursor.fixed(self.size, self.path)

    def walk(self, data: bytes, at: int, end: int) -> int:
        return at + self.size if at + self.size <= end else WRONG


@dataclass(frozen=True)
class Symbols:
    """Reads the symbols of an enum. ``symbols``: the reader's. ``known``: for each symbol of the writer's, its number
    among these, or -1 for a symbol that the reader does not have."""

    path: str
    known: tuple[int, ...]
    symbols: tuple[str, ...]
    type: ClassVar[pa.DataType] = pa.string()

    def read(self, cursor: Cursor) -> pa.Array:
        number = np.array(self.known).take(cursor.choice(len(self.known), self.path, "symbol"))
        wrong = number < 0
        if wrong.any():
            cursor.fail(wrong, f"{self.path}: the reader's enum does not have the symbol, and no default")
            number = np.maximum(number, 0)
        return pa.array(self.symbols, pa.string()).take(pa.array(number))

    def skip(self, cursor: Cursor) -> None:
        cursor.long(self.path)

    def walk(self, data: bytes, at: int, end: int) -> int:
        return walk_long(data, at, end)[1]


@dataclass(frozen=True)
class Constant:
    """Gives every row a default, an array of one value; no bytes stand for it."""

    value: pa.Array

    @property
    def type(self) -> pa.DataType:
        return self.value.type

    def read(self, cursor: Cursor) -> pa.Array:
        return self.value.take(pa.array(np.zeros(len(cursor), np.int64)))

    def skip(self, cursor: Cursor) -> None:
        pass

    def walk(self, data: bytes, at: int, end: int) -> int:
        return at


@dataclass(frozen=True)
class Struct:
    """Reads records. ``steps``: the fields in the order of their bytes, each with its number in the column's type; None
    for a field that the reader does not have, which is read all the same and has to be right."""

    type: pa.DataType
    steps: tuple[tuple[Reader, int | None], ...]

    def read(self, cursor: Cursor) -> pa.Array:
        columns: list[pa.Array | None] = [None] * self.type.num_fields
        for reader, number in self.steps:
            column = reader.read(cursor)
            if number is not None:
                columns[number] = column
        return pa.Array.from_buffers(self.type, len(cursor), [None], children=columns)

    def skip(self, cursor: Cursor) -> None:
        for reader, _ in self.steps:
            reader.skip(cursor)

    def walk(self, data: bytes, at: int, end: int) -> int:
        for reader, _ in self.steps:
            at = reader.walk(data, at, end)
            if at < 0:
                break
        return at


@dataclass(frozen=True)
class Member:
    """Reads a value as member ``number`` of a union, for which the column has a struct."""

    type: pa.DataType
    number: int
    reader: Reader

    def read(self, cursor: Cursor) -> pa.Array:
        count = len(cursor)
        columns = [pa.nulls(count, one.type) for one in self.type]
        columns[self.number] = self.reader.read(cursor)
        return pa.Array.from_buffers(self.type, count, [None], children=columns)

    def skip(self, cursor: Cursor) -> None:
        self.reader.skip(cursor)

    def walk(self, data: bytes, at: int, end: int) -> int:
        return self.reader.walk(data, at, end)


@dataclass(frozen=True)
class Branches:
    """Reads a union. ``readers``: for each branch, what reads its values into the column's type; Null if they become
    null; a text if the reader's schema has no place for them, which says so."""

    path: str
    type: pa.DataType
    readers: tuple[Reader | str, ...]

    def read(self, cursor: Cursor) -> pa.Array:
        number = cursor.choice(len(self.readers), self.path, "branch")
        count, parts, lanes = len(cursor), [], []
        for branch, reader in enumerate(self.readers):
            here = number == branch
            if isinstance(reader, str):
                if here.any():
                    cursor.fail(here, f"{self.path}: {reader}")
            elif not isinstance(reader, Null):
                index = np.flatnonzero(here)
                if len(index) == count:
                    return reader.read(cursor)
                if len(index):
                    part = cursor.some(index)
                    parts.append(reader.read(part))
                    cursor.join(index, part)
                    lanes.append(index)
        return self._gathered(count, parts, lanes)

    def _gathered(self, count: int, parts: list[pa.Array], lanes: list[np.ndarray]) -> pa.Array:
        """The values of some lanes each, in the order of all; null for those that have none."""
        if not parts:
            return pa.nulls(count, self.type)
        place, absent = np.zeros(count, np.int64), np.ones(count, np.bool_)
        index = np.concatenate(lanes)
        place[index] = np.arange(len(index))
        absent[index] = False
        column = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return column.take(pa.array(place, mask=absent))

    def skip(self, cursor: Cursor) -> None:
        number = cursor.choice(len(self.readers), self.path, "branch")
        for branch, reader in enumerate(self.readers):
            index = np.flatnonzero(number == branch)
            if len(index) and not isinstance(reader, Null):
                part = cursor.some(index)
                if isinstance(reader, str):
                    part.fail(np.ones(len(index), np.bool_), reader)
                else:
                    reader.skip(part)
                cursor.join(index, part)

    def walk(self, data: bytes, at: int, end: int) -> int:
        number, at = walk_long(data, at, end)
        reader = self.readers[number] if 0 <= number < len(self.readers) else ""
        return WRONG if at < 0 or isinstance(reader, str) else reader.walk(data, at, end)
