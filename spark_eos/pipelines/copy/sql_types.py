"""DuckDB's types as columns of a result: which of them Arrow has with the same values, and values that it has not.

The types are judged as DuckDB names them: as one of Arrow's, an unsigned number of 128 bits is a negative one, and bits
are the bytes by which DuckDB keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.errors import stop

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

#: By DuckDB's name of a type: whether Arrow has all of its values. Of the others `check_values` looks at each.
_TAKEN = dict.fromkeys(
    (
        *("boolean", "tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint"),
        *("float", "double", "decimal", "varchar", "blob", "uuid", "enum", "null"),
    ),
    True,
) | dict.fromkeys(
    (
        *("hugeint", "date", "time", "time_ns", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"),
        *("timestamp with time zone", "timestamptz_ns"),
    ),
    False,
)
#: The types that have other types within them.
_NESTED = ("list", "array", "struct", "map")


class Unfit(Exception):
    """The result has a value that Arrow's type for it does not have."""


def check_types(columns: Sequence[str], types: Sequence[DuckDBPyType]) -> None:
    """Raise SchemaError for a column of a result with a type that is not taken, at any depth."""
    for column, type_ in zip(columns, types, strict=True):
        for leaf in _leaves(type_):
            if leaf.id not in _TAKEN:
                raise stop("EOS_TRANSFORM_SQL.type", column=column, type=leaf)


def may_be_unfit(types: Sequence[DuckDBPyType]) -> bool:
    """Return whether values of one of the types have to be checked by `check_values`."""
    return not all(_TAKEN[leaf.id] for type_ in types for leaf in _leaves(type_))


def _leaves(type_: DuckDBPyType) -> Iterator[DuckDBPyType]:
    """Yield the leaf types, at any depth."""
    if type_.id not in _NESTED:
        yield type_
        return
    for _, child in type_.children:
        if not isinstance(child, int | list):  # as the length of an array is
            yield from _leaves(child)


def check_values(rows: pa.Table) -> None:
    """Raise Unfit for a number of more digits than Arrow has for it, for 24 o'clock, and for the infinite dates and
    timestamps of DuckDB, which are no dates elsewhere."""
    for column in rows.columns:
        for chunk in column.chunks:
            _check(chunk)


def _check(array: pa.Array) -> None:
    type_ = array.type
    if pa.types.is_struct(type_):
        for within in array.flatten():
            _check(within)
    elif pa.types.is_map(type_):
        _check(array.keys)
        _check(array.items)
    elif pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        _check(array.flatten())
    elif pa.types.is_decimal(type_) and not type_.scale:  # as Arrow has whole numbers of 128 bits
        ends = pc.min_max(array)  # Arrow's own validation takes the least number of 128 bits for one of few digits
        if any(abs(int(end.as_py())) >= 10**type_.precision for end in ends.values() if end.is_valid):
            raise Unfit(f"a number of more than {type_.precision} digits")
    elif pa.types.is_temporal(type_):
        _check_times(array)


def _check_times(array: pa.Array) -> None:
    type_ = array.type
    ends = pc.min_max(array.view(pa.int32() if type_.bit_width == 32 else pa.int64()))
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None:
        return
    if pa.types.is_time(type_):
        if most >= 86_400 * (10**6 if type_.unit == "us" else 10**9):
            raise Unfit("a time of 24:00:00, which ends no day elsewhere")
    elif max(-least, most) >= (1 << (type_.bit_width - 1)) - 1:
        raise Unfit(f"an infinite {'date' if pa.types.is_date(type_) else 'timestamp'}")
