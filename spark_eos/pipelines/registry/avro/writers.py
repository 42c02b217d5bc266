"""Writers, each of which writes the values of a column as parts of all datums. No I/O.

`plan.py` chooses them by a schema and an Arrow type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.pipelines.registry.avro.cells import Cells, Part, constant, join, plain, varints
from spark_eos.pipelines.registry.avro.cursor import Verdicts
from spark_eos.pipelines.registry.avro.decimals import BYTES, bytes_of, too_long, words_of
from spark_eos.pipelines.registry.avro.texts import not_uuids, null_but_where, twice, uuid_bytes

_LONG_MOST = (1 << 63) - 1
_UINT_MOST = (1 << 32) - 1


class Lanes:
    """The lanes of n values. ``row``: the row of each lane, n int64. ``live``: n bool, or None if all are live. A lane
    that is not live gets no bytes for any value: for example, the other members of a union, or the fields of a record
    that is null."""

    def __init__(self, row: np.ndarray, live: np.ndarray | None, verdicts: Verdicts) -> None:
        self.row = row
        self.live = live
        self._verdicts = verdicts

    def __len__(self) -> int:
        return len(self.row)

    def where(self, live: np.ndarray) -> Lanes:
        """Return the lanes, live only where ``live`` (n bool) is true as well."""
        if live.all():
            return self
        return Lanes(self.row, live if self.live is None else self.live & live, self._verdicts)

    def items(self, count: np.ndarray) -> Lanes:
        """Return the lanes of the items of lists. ``count``: of items of each lane, n int64."""
        live = None if self.live is None else np.repeat(self.live, count)
        return Lanes(np.repeat(self.row, count), live, self._verdicts)

    def fail(self, where: np.ndarray, reason: str) -> None:
        """Mark the rows of live lanes where ``where`` (n bool) is true as bad, for this reason."""
        if where.any():
            rows = self.row[where if self.live is None else where & self.live]
            self._verdicts.mark(rows, reason)

    def present(self, column: pa.Array, path: str) -> np.ndarray:
        """Return which of n values are not null, n bool. Marks the rows of live lanes whose value is null as bad."""
        valid = _valid(column)
        if column.null_count:
            self.fail(~valid, f"{path} is null")
        return valid


def _valid(column: pa.Array) -> np.ndarray:
    """Return which of n values are not null, n bool."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    valid: np.ndarray = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


class ValueWriter(Protocol):
    """Writes the n values of a column as parts of n datums; the parts of lanes that are not live are empty."""

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]: ...


def _numbers(column: pa.Array) -> np.ndarray:
    """Return the n numbers of a column, with 0 for null."""
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(0, column.type))
    numbers: np.ndarray = column.to_numpy(zero_copy_only=False)
    return numbers


@dataclass(frozen=True)
class NullWriter:
    """Writes nothing for nulls."""

    path: str

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        return []


@dataclass(frozen=True)
class BooleanWriter:
    """Writes a byte, 0 or 1."""

    path: str

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        lanes.present(column, self.path)
        return [plain(pc.fill_null(column, False).to_numpy(zero_copy_only=False).view(np.uint8)).where(lanes.live)]


@dataclass(frozen=True)
class IntegerWriter:
    """Multiplies numbers by ``factor`` or divides them by ``divisor``, rounding down, and writes them as ints and longs
    from ``least`` to ``most``. ``what``: the name of the range; empty if every number is in it."""

    path: str
    least: int
    most: int
    what: str
    factor: int = 1
    divisor: int = 1

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        lanes.present(column, self.path)
        if not pa.types.is_integer(column.type):
            column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
        given = _numbers(column)
        numbers = given.astype(np.int64, copy=False)
        if self.divisor > 1:
            numbers = numbers // self.divisor
        if self.what:
            wrong = (numbers < -(-self.least // self.factor)) | (numbers > self.most // self.factor)
            if given.dtype == np.uint64:
                wrong |= given > _LONG_MOST
            lanes.fail(wrong, f"{self.path} is not {self.what}")
        return [varints(numbers * self.factor if self.factor > 1 else numbers).where(lanes.live)]


@dataclass(frozen=True)
class RealWriter:
    """Writes floats and doubles. ``stored``: the numpy type in the datum."""

    path: str
    stored: str

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        lanes.present(column, self.path)
        return [plain(_numbers(column).astype(self.stored, copy=False)).where(lanes.live)]


@dataclass(frozen=True)
class PieceWriter:
    """Writes bytes and strings after their size, and fixed values of ``size`` bytes. ``type``: the type that the column
    is cast to. ``uuid``: whether the strings have to be UUIDs."""

    path: str
    type: pa.DataType
    size: int | None = None
    uuid: bool = False

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        valid = lanes.present(column, self.path)
        if column.type != self.type:
            column = column.cast(self.type)
        if self.uuid:
            lanes.fail(not_uuids(column), f"{self.path} is not a uuid")
        data = column.cast(pa.binary())
        if lanes.live is not None:
            data = null_but_where(lanes.live & valid, data)
        sizes = _numbers(pc.binary_length(data)).astype(np.int64)
        if self.size is None:
            return [varints(sizes).where(lanes.live), data]
        lanes.fail(valid & (sizes != self.size), f"{self.path} does not have {self.size} bytes")
        return [data]


@dataclass(frozen=True)
class UuidWriter:
    """Writes UUIDs, given as strings, as 16 bytes."""

    path: str

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        lanes.present(column, self.path)
        column = column.cast(pa.string())
        odd = not_uuids(column)
        lanes.fail(odd, f"{self.path} is not a uuid")
        zero = "00000000-0000-0000-0000-000000000000"
        column = pc.fill_null(null_but_where(~odd, column), zero)
        return [Cells(uuid_bytes(column)).where(lanes.live)]


@dataclass(frozen=True)
class DecimalWriter:
    """Writes decimals in as few bytes as possible, after their size, or as fixed values of ``size`` bytes. ``type``:
    decimal128 with the schema's scale."""

    path: str
    type: pa.DataType
    precision: int
    size: int | None

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        valid = lanes.present(column, self.path)
        high, low = words_of(column.cast(self.type))
        lanes.fail(valid & too_long(high, low, self.precision), f"{self.path} has more than {self.precision} digits")
        data, needed = bytes_of(high, low)
        if self.size is None:
            return [varints(needed).where(lanes.live), Cells(data, needed, at_end=True).where(lanes.live)]
        if self.size <= BYTES:
            return [Cells(data[:, BYTES - self.size :]).where(lanes.live)]
        signs = np.repeat((high >> 63).astype(np.uint8)[:, np.newaxis], self.size - BYTES, axis=1)
        return [Cells(signs).where(lanes.live), Cells(data).where(lanes.live)]


@dataclass(frozen=True)
class DurationWriter:
    """Writes durations. ``numbers``: the indexes of the struct's fields for months, days and milliseconds."""

    path: str
    numbers: tuple[int, ...]

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        lanes = lanes.where(lanes.present(column, self.path))
        parts: list[Part] = []
        for number in self.numbers:
            part = column.field(number)
            lanes.present(part, self.path)
            values = _numbers(part)
            lanes.fail((values < 0) | (values > _UINT_MOST), f"{self.path} is no duration of unsigned 32 bits")
            parts.append(plain(values.astype("<u4")).where(lanes.live))
        return parts


@dataclass(frozen=True)
class SymbolWriter:
    """Writes the symbols of an enum as their indexes."""

    path: str
    symbols: tuple[str, ...]

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        valid = lanes.present(column, self.path)
        number = pc.index_in(column.cast(pa.string()), pa.array(self.symbols, pa.string()))
        known = _valid(number)
        lanes.fail(valid & ~known, f"{self.path} is no symbol of the enum")
        return [varints(_numbers(number).astype(np.int64)).where(lanes.live)]


@dataclass(frozen=True)
class DefaultWriter:
    """Writes a default, a datum, for a field that the rows do not have."""

    datum: bytes

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        return [constant(self.datum, len(lanes)).where(lanes.live)]


@dataclass(frozen=True)
class StructWriter:
    """Writes records. ``fields``: for each field, in the order of the datum, its writer and its index in the struct;
    None for a default."""

    path: str
    fields: tuple[tuple[ValueWriter, int | None], ...]

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        lanes = lanes.where(lanes.present(column, self.path))
        parts: list[Part] = []
        for writer, number in self.fields:
            parts += writer.write(column if number is None else column.field(number), lanes)
        return parts


@dataclass(frozen=True)
class OptionalWriter:
    """Writes unions of one branch, with or without null. ``null``, ``other``: the indexes of the branches, where
    ``null`` may be None. ``writer``: of the other branch; None for columns of Arrow's type null."""

    path: str
    null: int | None
    other: int
    writer: ValueWriter | None

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        valid = _valid(column)
        if self.null is None:
            lanes.present(column, self.path)
        number = np.where(valid, 2 * self.other, 2 * (self.null or 0)).astype(np.uint8)
        index = Cells(number[:, np.newaxis]).where(lanes.live)
        if self.writer is None or not valid.any():
            return [index]
        return [index, *self.writer.write(column, lanes.where(valid))]


@dataclass(frozen=True)
class UnionWriter:
    """Writes unions of several branches, given as structs. ``members``: for each field of the struct, the index of its
    branch in the union, and its writer. ``null``: the index of the branch null, or None."""

    path: str
    null: int | None
    members: tuple[tuple[int, ValueWriter], ...]

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        valid = _valid(column)
        number = np.full(len(lanes), self.null or 0)
        count = np.zeros(len(lanes), np.int64)
        for place, (branch, _) in enumerate(self.members):
            here = valid & _valid(column.field(place))
            number[here] = branch
            count += here
        lanes.fail(count > 1, f"{self.path} has values for several members of the union")
        if self.null is None:
            lanes.fail(count == 0, f"{self.path} is null")
        else:
            lanes.fail(valid & (count == 0), f"{self.path} has no value for any member of the union")
        parts: list[Part] = [varints(number).where(lanes.live)]
        for place, (branch, writer) in enumerate(self.members):
            here = (number == branch) & (count > 0)
            if here.any():
                parts += writer.write(column.field(place), lanes.where(here))
        return parts


@dataclass(frozen=True)
class ListWriter:
    """Writes arrays, each as one block."""

    path: str
    item: ValueWriter

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        lanes = lanes.where(lanes.present(column, self.path))
        if pa.types.is_fixed_size_list(column.type):
            ends = (column.offset + np.arange(len(column) + 1)) * column.type.list_size
        else:
            ends = column.offsets.to_numpy()
        items = column.values.slice(ends[0], ends[-1] - ends[0])
        return _block(lanes, np.diff(ends), lambda inner: self.item.write(items, inner))


@dataclass(frozen=True)
class MapValueWriter:
    """Writes maps, each as one block."""

    path: str
    key: ValueWriter
    value: ValueWriter

    def write(self, column: pa.Array, lanes: Lanes) -> list[Part]:
        lanes = lanes.where(lanes.present(column, self.path))
        ends = column.offsets.to_numpy()
        keys = column.keys.slice(ends[0], ends[-1] - ends[0])
        values = column.items.slice(ends[0], ends[-1] - ends[0])
        count = np.diff(ends)
        same = np.zeros(len(lanes), np.bool_)
        same[twice(np.repeat(np.arange(len(lanes)), count), keys)] = True
        lanes.fail(same, f"{self.path} has a key twice")
        return _block(lanes, count, lambda inner: self.key.write(keys, inner) + self.value.write(values, inner))


def _block(lanes: Lanes, count: np.ndarray, write: Callable[[Lanes], list[Part]]) -> list[Part]:
    """Return for each lane a block of ``count`` items (n int64), and the end of the array. ``write``: writes the items
    of all lanes."""
    inner = lanes.items(count)
    items = join(write(inner), len(inner))
    # The items of each lane are adjacent; items of lanes that are not live have no bytes.
    ends = np.zeros(len(lanes) + 1, np.int64)
    np.cumsum(count, out=ends[1:])
    places = np.frombuffer(items.buffers()[1], np.int32)[items.offset :][: len(items) + 1].take(ends)
    buffers = [None, pa.py_buffer(places), items.buffers()[2]]
    body = pa.Array.from_buffers(pa.binary(), len(lanes), buffers)
    some = count > 0
    begin = varints(count.astype(np.int64)).where(some if lanes.live is None else some & lanes.live)
    return [begin, body, constant(b"\0", len(lanes)).where(lanes.live)]
