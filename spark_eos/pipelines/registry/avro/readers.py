"""Readers, each of which reads a value of one type from every datum into a column. No I/O.

`resolve.py` chooses them by a writer's and a reader's schema. Arrays and maps are in `items.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa

from spark_eos.pipelines.registry.avro.arrow import DURATION, DURATION_PARTS
from spark_eos.pipelines.registry.avro.cursor import Cursor
from spark_eos.pipelines.registry.avro.decimals import column_of, read_decimals, too_long
from spark_eos.pipelines.registry.avro.schema import DURATION_BYTES, UUID_BYTES
from spark_eos.pipelines.registry.avro.texts import as_texts, not_uuids, uuid_texts
from spark_eos.pipelines.registry.avro.units import LONG_LEAST, LONG_MOST
from spark_eos.pipelines.registry.avro.walk import WRONG, walk_long, walk_piece


class ValueReader(Protocol):
    """Reads a value of each lane of a cursor.

    ``type``: the type of the column. ``read`` returns the column; lanes that fail have any value. ``skip`` only moves
    the lanes; it fails lanes whose next value cannot be found, and overlooks other mistakes. ``walk`` is ``skip`` for a
    single datum, ``data[at:end]``: it returns the position behind the value, or WRONG. The two must agree, as either
    may find the items of an array.
    """

    @property
    def type(self) -> pa.DataType: ...

    def read(self, cursor: Cursor) -> pa.Array: ...

    def skip(self, cursor: Cursor) -> None: ...

    def walk(self, data: bytes, at: int, end: int) -> int: ...


def _plain(type_: pa.DataType, values: np.ndarray) -> pa.Array:
    """Return a column with these numbers in its buffer."""
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


class _Empty:
    """Passes over values of no bytes."""

    def skip(self, cursor: Cursor) -> None:
        pass

    def walk(self, data: bytes, at: int, end: int) -> int:
        return at


@dataclass(frozen=True)
class _Long:
    """Passes over ints and longs."""

    path: str

    def skip(self, cursor: Cursor) -> None:
        cursor.long(self.path)

    def walk(self, data: bytes, at: int, end: int) -> int:
        return walk_long(data, at, end)[1]


@dataclass(frozen=True)
class _FixedSize:
    """Passes over values of ``size`` bytes."""

    path: str

    @property
    def size(self) -> int:
        return 1

    def skip(self, cursor: Cursor) -> None:
        cursor.fixed(self.size, self.path)

    def walk(self, data: bytes, at: int, end: int) -> int:
        return at + self.size if at + self.size <= end else WRONG


@dataclass(frozen=True)
class Null(_Empty):
    """Reads nulls."""

    type: pa.DataType

    def read(self, cursor: Cursor) -> pa.Array:
        return pa.nulls(len(cursor), self.type)


@dataclass(frozen=True)
class Boolean(_FixedSize):
    """Reads a byte, 0 or 1."""

    type: ClassVar[pa.DataType] = pa.bool_()

    def read(self, cursor: Cursor) -> pa.Array:
        values = cursor.data.raw.take(cursor.fixed(1, self.path))
        wrong = values > 1
        if wrong.any():
            cursor.fail(wrong, f"{self.path}: a boolean is neither 0 nor 1")
        return pa.array(values != 0)


@dataclass(frozen=True)
class Integer(_Long):
    """Reads ints and longs from ``least`` to ``most``, and multiplies them by ``factor``. ``what``: the name of the
    range; empty if any number is in it. ``numbers``: the column's numpy type."""

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


@dataclass(frozen=True)
class Real(_FixedSize):
    """Reads floats and doubles as floats or doubles. ``stored``, ``numbers``: the numpy types in the datum and in the
    column."""

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


@dataclass(frozen=True)
class Piece:
    """Finds the bytes of bytes, strings and decimals: ``size`` bytes, or, if it is None, as many as the length before
    them says."""

    path: str
    size: int | None

    def places(self, cursor: Cursor) -> tuple[np.ndarray, np.ndarray]:
        """Return where the bytes begin, and their number, 0 where a lane fails (n int64 each)."""
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
    """Reads strings, and bytes as strings. ``uuid``: whether they have to be UUIDs."""

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
    """Reads decimals. ``precision``: the most digits of the writer's type that a column can hold."""

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
class Bundle(_FixedSize):
    """Reads fixed values with a logical type: UUIDs as texts, durations as structs."""

    type: pa.DataType

    @property
    def size(self) -> int:
        """In bytes."""
        return DURATION_BYTES if self.type == DURATION else UUID_BYTES

    def read(self, cursor: Cursor) -> pa.Array:
        # A lane that fails may be at its end: its words must still be within the buffer.
        start = np.minimum(cursor.fixed(self.size, self.path), len(cursor.data.raw) - UUID_BYTES)
        words = [cursor.data.words(start + at, "<u4") for at in range(0, self.size, 4)]
        if self.type != DURATION:
            return uuid_texts(np.stack(words, axis=1).view(np.uint8).reshape(-1, UUID_BYTES))
        columns = [_plain(pa.int64(), part.astype(np.int64)) for part in words]
        assert len(columns) == len(DURATION_PARTS)
        return pa.Array.from_buffers(self.type, len(cursor), [None], children=columns)


@dataclass(frozen=True)
class Symbols(_Long):
    """Reads the symbols of an enum. ``symbols``: of the reader's enum; ``known``: for each symbol of the writer's enum
    its index there, -1 for a symbol that the reader does not have."""

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


@dataclass(frozen=True)
class Constant(_Empty):
    """Gives every row a default, which is in no datum. ``value``: an array of length 1."""

    value: pa.Array

    @property
    def type(self) -> pa.DataType:
        return self.value.type

    def read(self, cursor: Cursor) -> pa.Array:
        return self.value.take(pa.array(np.zeros(len(cursor), np.int64)))


@dataclass(frozen=True)
class Struct:
    """Reads records. ``steps``: for each field, in the order of the datum, its reader and its index in the column's
    type; None for a field that the reader does not have, which is checked all the same."""

    type: pa.DataType
    steps: tuple[tuple[ValueReader, int | None], ...]

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
    """Reads a value as member ``number`` of a union, which is a struct in the column."""

    type: pa.DataType
    number: int
    reader: ValueReader

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
    """Reads unions. ``readers``: for each branch the reader of its values into the column's type; a text for a branch
    whose values the reader's schema cannot hold, the reason."""

    path: str
    type: pa.DataType
    readers: tuple[ValueReader | str, ...]

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
        """Return the values of all lanes in order; null for lanes that are in none of the ``parts``."""
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
