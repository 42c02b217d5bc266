"""Statistics of a file's columns, by which readers skip files. A wrong one hides rows, so what is doubtful is left out.

=======================  ========================================================================================
integers, booleans       exact bounds: Spark answers ``min`` and ``max`` by them, without reading
date                     exact bounds; unknown outside of the years 1 to 9999
floating point           exact bounds; unknown if there is a NaN, which engines order differently, or an infinity,
                         which JSON does not have; zero is the least as -0.0 and the greatest as 0.0
decimal                  15 digits, as readers that take them for a double would round more: the least rounded down,
                         the greatest up
string                   cut to 32 characters; the greatest then ends with U+10FFFF, so that it is above all
                         strings that begin with it
timestamp                milliseconds: the least rounded down, the greatest up; unknown outside of the years 1 to 9999
binary, arrays, maps     the number of nulls alone
=======================  ========================================================================================

Columns within structs have statistics of their own, as Delta has them.
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

#: Characters of a string's bounds.
LONGEST = 32
#: Digits that a double holds exactly.
_DIGITS = 15
_LAST_CHARACTER = "\U0010ffff"
_EPOCH = datetime(1970, 1, 1)

#: A bound of a column: dates and timestamps as text of ISO 8601, timestamps in milliseconds.
Bound = int | float | str | Decimal


@dataclass(frozen=True)
class ColumnStatistics:
    """What readers may use to skip a file. ``column``: the names from the root to the leaf, more than one within
    structs. No value is less than ``low`` or greater than ``high``; both are None if all values are null, if the type
    has no bounds, or if they are ``unknown``."""

    column: tuple[str, ...]
    nulls: int
    low: Bound | None = None
    high: Bound | None = None
    unknown: bool = False


class Collector:
    """Statistics of a file's leaf columns, over its row groups, up to the ``most``-th one whose type has bounds."""

    def __init__(self, schema: pa.Schema, most: int) -> None:
        leaves = [_Leaf(*leaf) for place, column in enumerate(schema) for leaf in _leaves(column, (place,), ())]
        bounded = [place for place, leaf in enumerate(leaves) if leaf.has_bounds]
        self._leaves = leaves[: bounded[most]] if len(bounded) > most else leaves

    def add(self, rows: pa.Table) -> None:
        """Take all rows of a row group."""
        for leaf in self._leaves:
            leaf.add(rows)

    def statistics(self) -> tuple[ColumnStatistics, ...]:
        return tuple(leaf.statistics() for leaf in self._leaves)


def _leaves(
    field: pa.Field, places: tuple[int, ...], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[int, ...], pa.DataType]]:
    """Names, places in their structs, and type of each leaf; an array or a map is one."""
    names = (*above, field.name)
    if not pa.types.is_struct(field.type):
        yield names, places, field.type
        return
    for place in range(field.type.num_fields):
        yield from _leaves(field.type.field(place), (*places, place), names)


class _Leaf:
    def __init__(self, names: tuple[str, ...], places: tuple[int, ...], type_: pa.DataType) -> None:
        self._names, self._places, self._type = names, places, type_
        self._nulls = 0
        self._bounds: tuple[Any, Any] | None = None
        self._unknown = False
        self.has_bounds = _has_bounds(type_)

    def add(self, rows: pa.Table) -> None:
        column = rows.column(self._places[0])
        if len(self._places) > 1:
            column = pc.struct_field(column, list(self._places[1:]))  # null, too, where a struct above is null
        self._nulls += column.null_count
        if not self.has_bounds or self._unknown or column.null_count == len(column):
            return
        found = _bounds(column, self._type)
        if found is None:
            self._unknown = True
        elif self._bounds is None:
            self._bounds = found
        else:
            self._bounds = min(self._bounds[0], found[0]), max(self._bounds[1], found[1])

    def statistics(self) -> ColumnStatistics:
        if self._bounds is None or self._unknown:
            return ColumnStatistics(self._names, self._nulls, unknown=self._unknown)
        low, high = _written(*self._bounds, self._type)
        return ColumnStatistics(self._names, self._nulls, low, high, unknown=low is None)


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


def _bounds(column: pa.ChunkedArray, type_: pa.DataType) -> tuple[Any, Any] | None:
    """Bounds of the values that are not null, of which there is one, in an order that Python has; None for doubt."""
    if pa.types.is_floating(type_) and pc.any(pc.is_nan(column)).as_py():
        return None
    both = pc.min_max(column)
    if pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
        low, high = (one.value for one in both.values())  # a number: Python has fewer years
        return low, high
    low, high = (one.as_py() for one in both.values())
    if pa.types.is_string(type_):
        low, high = cut_low(low), cut_high(high)
    return None if high is None else (low, high)


def _written(low: Any, high: Any, type_: pa.DataType) -> tuple[Bound, Bound] | tuple[None, None]:  # noqa: ANN401
    """The bounds as statistics have them."""
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
    """A short string that is not greater."""
    return text[:LONGEST]


def cut_high(text: str) -> str | None:
    """A short string that is not less; None if there is none."""
    if len(text) <= LONGEST:
        return text
    end = next((end for end in range(LONGEST, -1, -1) if text[end] != _LAST_CHARACTER), None)
    return None if end is None else text[:end] + _LAST_CHARACTER
