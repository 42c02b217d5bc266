"""Statistics of a file's columns, by which readers skip files. A wrong bound hides rows, so doubtful ones are left out.

=======================  ========================================================================================
integers, booleans       exact bounds: Spark answers ``min`` and ``max`` by them, without reading
date                     exact bounds; unknown outside of the years 1 to 9999
floating point           exact bounds; unknown if there is a NaN, which engines order differently, or an infinity,
                         which JSON does not have; zero is -0.0 as the lower bound and 0.0 as the upper
decimal                  15 digits, the most that a reader's double holds: the lower bound rounded down, the upper up
string                   cut to 32 characters; a cut upper bound ends with U+10FFFF, so that it is greater than all
                         strings with the same beginning
timestamp                milliseconds: the lower bound rounded down, the upper up; unknown outside of the years 1 to
                         9999
binary, arrays, maps     the number of nulls only
=======================  ========================================================================================

As in Delta, columns within structs have statistics of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: The longest bound of a string in characters.
LONGEST = 32
#: Digits that a double holds exactly.
_DIGITS = 15
_LAST_CHARACTER = "\U0010ffff"
_EPOCH = datetime(1970, 1, 1)

#: A bound of a column: dates and timestamps as text of ISO 8601, timestamps in milliseconds.
Bound = int | float | str | Decimal


@dataclass(frozen=True)
class ColumnStatistics:
    """The statistics of a leaf column. ``column``: the names from the root to the leaf, several within structs. No
    value is less than ``low`` or greater than ``high``; both are None if all values are null, if the type has no
    bounds, or if these are ``unknown``. ``nans``: how many are NaN; None for other types than floating point."""

    column: tuple[str, ...]
    nulls: int
    low: Bound | None = None
    high: Bound | None = None
    unknown: bool = False
    nans: int | None = None


class Collector:
    """Collects the statistics of a file's leaf columns, up to the ``most``-th column whose type has bounds."""

    def __init__(self, schema: pa.Schema, most: int) -> None:
        leaves = [_Leaf(*leaf) for index, column in enumerate(schema) for leaf in _leaves(column, (index,), ())]
        bounded = [index for index, leaf in enumerate(leaves) if leaf.has_bounds]
        self._leaves = leaves[: bounded[most]] if len(bounded) > most else leaves

    def add(self, rows: pa.Table) -> None:
        """Add the rows of a row group."""
        for leaf in self._leaves:
            leaf.add(rows)

    def statistics(self) -> tuple[ColumnStatistics, ...]:
        return tuple(leaf.statistics() for leaf in self._leaves)


def _leaves(
    field: pa.Field, indices: tuple[int, ...], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[int, ...], pa.DataType]]:
    """Yield the names, the indexes in their structs, and the type of each leaf column; an array or a map is a leaf."""
    names = (*above, field.name)
    if not pa.types.is_struct(field.type):
        yield names, indices, field.type
        return
    for index in range(field.type.num_fields):
        yield from _leaves(field.type.field(index), (*indices, index), names)


class _Leaf:
    def __init__(self, names: tuple[str, ...], indices: tuple[int, ...], type_: pa.DataType) -> None:
        self._names, self._indices, self._type = names, indices, type_
        self._nulls = 0
        self._nans: int | None = 0 if pa.types.is_floating(type_) else None
        self._bounds: tuple[Any, Any] | None = None
        self._unknown = False
        self.has_bounds = _has_bounds(type_)

    def add(self, rows: pa.Table) -> None:
        column = rows.column(self._indices[0])
        if len(self._indices) > 1:
            column = pc.struct_field(column, list(self._indices[1:]))  # null where a struct above is null
        self._nulls += column.null_count
        nans = 0
        if self._nans is not None:
            nans = pc.sum(pc.is_nan(column)).as_py() or 0
            self._nans += nans
        if not self.has_bounds or self._unknown or column.null_count == len(column):
            return
        bounds = _bounds(column, self._type, nans)
        if bounds is None:
            self._unknown = True
        elif self._bounds is None:
            self._bounds = bounds
        else:
            self._bounds = min(self._bounds[0], bounds[0]), max(self._bounds[1], bounds[1])

    def statistics(self) -> ColumnStatistics:
        if self._bounds is None or self._unknown:
            return ColumnStatistics(self._names, self._nulls, unknown=self._unknown, nans=self._nans)
        low, high = _written(*self._bounds, self._type)
        return ColumnStatistics(self._names, self._nulls, low, high, unknown=low is None, nans=self._nans)


def _has_bounds(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_boolean(type_)
        or pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_decimal(type_)
        or pa.types.is_string(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
    )


def _bounds(column: pa.ChunkedArray, type_: pa.DataType, nans: int) -> tuple[Any, Any] | None:
    """Return the bounds of a column that is not all null, as values that Python orders; None where they are unknown.
    ``nans``: how many values are NaN."""
    if nans:
        return None
    both = pc.min_max(column)
    if pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
        low, high = (one.value for one in both.values())  # numbers: Python's dates have fewer years
        return low, high
    low, high = (one.as_py() for one in both.values())
    if pa.types.is_string(type_):
        low, high = cut_low(low), cut_high(high)
    return None if high is None else (low, high)


def _written(low: Any, high: Any, type_: pa.DataType) -> tuple[Bound, Bound] | tuple[None, None]:  # noqa: ANN401
    """Return the bounds as they are written to statistics."""
    if pa.types.is_floating(type_):
        if math.isinf(low) or math.isinf(high):
            return None, None
        return -0.0 if low == 0 else low, 0.0 if high == 0 else high
    if pa.types.is_decimal(type_):
        return _decimals(low, high, type_)
    if pa.types.is_date32(type_):
        try:
            return _day(low), _day(high)
        except OverflowError:
            return None, None
    if pa.types.is_timestamp(type_):
        try:
            return _moment(low // 1000, type_), _moment(-(-high // 1000), type_)
        except OverflowError:
            return None, None
    return low, high


def _decimals(low: Decimal, high: Decimal, type_: pa.DataType) -> tuple[Decimal, Decimal] | tuple[None, None]:
    low, high = Context(_DIGITS, ROUND_FLOOR).plus(low), Context(_DIGITS, ROUND_CEILING).plus(high)
    most = Decimal(10) ** (type_.precision - type_.scale)
    return (low, high) if -most < low and high < most else (None, None)


def _day(days: int) -> str:
    return (_EPOCH + timedelta(days=days)).date().isoformat()


def _moment(ms: int, type_: pa.DataType) -> str:
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.isoformat("T", "milliseconds") + ("Z" if type_.tz else "")


def cut_low(text: str) -> str:
    """Return a string of at most `LONGEST` characters that is not greater."""
    return text[:LONGEST]


def cut_high(text: str) -> str | None:
    """Return a string of about `LONGEST` characters that is not less; None if there is none."""
    if len(text) <= LONGEST:
        return text
    end = next((end for end in range(LONGEST, -1, -1) if text[end] != _LAST_CHARACTER), None)
    return None if end is None else text[:end] + _LAST_CHARACTER
