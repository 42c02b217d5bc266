"""Readers of Delta tables that share nothing with the code under test, each asked for the rows of a predicate.

All of them skip files: delta-rs and polars by the log's statistics and partition values, Arrow's datasets by what
delta-rs makes of these, and DuckDB by Arrow's datasets, to which it gives its predicates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.fs
from deltalake import DeltaTable, QueryBuilder

OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "is null", "is not null")
UTC = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Predicate:
    """``column operator value``; ``column``: with a dot for a field of a struct. ``value``: as Python has it, a
    timestamp as its microseconds since 1970."""

    column: str
    operator: str
    value: Any = None

    def holds(self, value: Any, key: Callable[[float], Any]) -> bool:
        """Whether a row with this value is to be found, with floating-point numbers in the order of ``key``."""
        if self.operator.startswith("is"):
            return (value is None) == (self.operator == "is null")
        if value is None:
            return False
        left, right = (key(one) if isinstance(one, float) else one for one in (value, self.value))
        return bool(_COMPARISONS[self.operator](left, right))


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def plain_order(value: float) -> Any:
    """NaN equals nothing and compares with nothing."""
    return value


def nan_last(value: float) -> Any:
    """NaN equals itself, and is the greatest."""
    return (1, 0.0) if math.isnan(value) else (0, value)


def local_dataset(table: DeltaTable) -> pyarrow.dataset.Dataset:
    """The table on this machine as delta-rs makes a dataset of it, by Arrow's own file system.

    That of delta-rs is in Python, whose lock DuckDB holds while Arrow (26) begins to read. A thread of Arrow may wait
    for it then, and hold a lock that this beginning needs: for ever.
    """
    folder = pyarrow.fs.SubTreeFileSystem(url2pathname(urlsplit(table.table_uri).path), pyarrow.fs.LocalFileSystem())
    return table.to_pyarrow_dataset(filesystem=folder)


class Opened:
    """A table as it is now, for readers."""

    def __init__(self, table: DeltaTable) -> None:
        self.table = table

    @cached_property
    def dataset(self) -> pyarrow.dataset.Dataset:
        return local_dataset(self.table)

    @cached_property
    def session(self) -> QueryBuilder:
        return QueryBuilder().register("t", self.table)

    def count(self) -> int:
        """The number of rows by the log, as queries without a predicate have it."""
        number: int = pa.table(self.session.execute("SELECT count(*) AS n FROM t")).column("n")[0].as_py()
        return number


@dataclass(frozen=True)
class Reader:
    """``find``: the ids of the rows of a predicate, whose value is of the type. ``order``: of floating point."""

    name: str
    find: Callable[[Opened, Predicate, pa.DataType], list[int]]
    order: Callable[[float], Any]

    def takes(self, predicate: Predicate) -> bool:
        """Arrow takes a comparison with NaN for true where it knows bounds of the column."""
        is_nan = isinstance(predicate.value, float) and math.isnan(predicate.value)
        return not (is_nan and self.order is plain_order)


def _by_delta_rs(opened: Opened, predicate: Predicate, type_: pa.DataType) -> list[int]:
    column = _quoted(predicate.column)
    literal = "" if predicate.operator.startswith("is") else _datafusion_literal(predicate.value, type_)
    sql = f"SELECT id FROM t WHERE {column} {predicate.operator} {literal}"
    return _ids(pa.table(opened.session.execute(sql)))


def _datafusion_literal(value: Any, type_: pa.DataType) -> str:
    if isinstance(value, bool):
        return str(value)
    if pa.types.is_timestamp(type_):
        zone = 'Some("UTC")' if type_.tz else "None"
        return f"arrow_cast({value}, 'Timestamp(Microsecond, {zone})')"
    if pa.types.is_string(type_):
        return "'" + value.replace("'", "''") + "'"
    name = {"decimal128": "Decimal128", "date32[day]": "Date32", "float": "Float32", "double": "Float64"}
    if pa.types.is_decimal(type_):
        return f"arrow_cast('{value:f}', 'Decimal128({type_.precision}, {type_.scale})')"
    return f"arrow_cast('{value}', '{name.get(str(type_), str(type_).capitalize())}')"


def _by_arrow(opened: Opened, predicate: Predicate, type_: pa.DataType) -> list[int]:
    field = pc.field(*predicate.column.split("."))
    if predicate.operator == "is null":
        condition = field.is_null()
    elif predicate.operator == "is not null":
        condition = field.is_valid()
    else:
        condition = _COMPARISONS[predicate.operator](field, pa.scalar(predicate.value, type_))
    return _ids(opened.dataset.to_table(columns=["id"], filter=condition))


def _by_duckdb(opened: Opened, predicate: Predicate, type_: pa.DataType) -> list[int]:
    literal = "" if predicate.operator.startswith("is") else _duckdb_literal(predicate.value, type_)
    connection = _connection()
    connection.register("t", opened.dataset)
    try:
        sql = f"SELECT id FROM t WHERE {_quoted(predicate.column)} {predicate.operator} {literal}"
        return _ids(connection.sql(sql).to_arrow_table())
    finally:
        connection.unregister("t")


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """A database that holds nothing: to make one takes longer than all that it is for."""
    return duckdb.connect(config={"threads": 1})


def _duckdb_literal(value: Any, type_: pa.DataType) -> str:
    if isinstance(value, bool):
        return str(value)
    if pa.types.is_timestamp(type_):
        return f"make_timestamptz({value})" if type_.tz else f"make_timestamp({value})"
    if pa.types.is_string(type_):
        return "'" + value.replace("'", "''") + "'"
    names = {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT", "date32[day]": "DATE"}
    names |= {"float": "FLOAT", "double": "DOUBLE"}
    name = f"DECIMAL({type_.precision}, {type_.scale})" if pa.types.is_decimal(type_) else names[str(type_)]
    text = format(value, "f") if pa.types.is_decimal(type_) else value
    return f"CAST('{text}' AS {name})"


def _by_polars(opened: Opened, predicate: Predicate, type_: pa.DataType) -> list[int]:
    name, *fields = predicate.column.split(".")
    column = pl.col(name)
    for field in fields:
        column = column.struct.field(field)
    if predicate.operator == "is null":
        condition = column.is_null()
    elif predicate.operator == "is not null":
        condition = column.is_not_null()
    else:
        literal = pl.from_arrow(pa.array([predicate.value], type_))[0]  # type: ignore[index]
        dtype = pl.from_arrow(pa.array([], type_)).dtype  # type: ignore[union-attr]
        condition = _COMPARISONS[predicate.operator](column, pl.lit(literal, dtype))  # type: ignore[assignment]
    found = pl.scan_delta(opened.table).filter(condition).select("id").collect()
    return sorted(found["id"].to_list())


def _quoted(column: str) -> str:
    return ".".join(f'"{name}"' for name in column.split("."))


def _ids(rows: pa.Table) -> list[int]:
    return sorted(rows.column("id").to_pylist())


READERS = (
    Reader("delta-rs", _by_delta_rs, nan_last),
    Reader("Arrow", _by_arrow, plain_order),
    Reader("DuckDB", _by_duckdb, nan_last),
    Reader("polars", _by_polars, nan_last),
)
