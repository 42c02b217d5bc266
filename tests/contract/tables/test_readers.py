"""Rows that are written are found by every reader, whatever it skips files by.

Random rows of all types go through `FileWriter` into files of a Delta table; then readers that share nothing with it
are asked for the rows of random predicates, and have to find those that Python finds in the plain rows.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.transaction import CommitProperties, Transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import open_store
from spark_eos.pipelines.tables.delta.actions import add_action, statistics_columns
from spark_eos.pipelines.tables.files import FileLayout
from spark_eos.pipelines.tables.values import conformed
from tests.support.judges.table_readers import OPERATORS, READERS, UTC, Opened, Predicate
from tests.support.tables.table_kinds import written

LAST = "\U0010ffff"
STRUCT = pa.struct({"a": pa.int64(), "s": pa.string()})
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "i": pa.int64(),
        "y": pa.int8(),
        "f": pa.float64(),
        "g": pa.float32(),
        "d": pa.decimal128(12, 2),
        "w": pa.decimal128(38, 10),
        "s": pa.string(),
        "b": pa.bool_(),
        "t": pa.date32(),
        "u": UTC,
        "n": pa.timestamp("us"),
        "r": STRUCT,
        "x": pa.binary(),
        "l": pa.list_(pa.int64()),
    }
)
#: A folder where nobody waits for a disk, of Linux.
IN_MEMORY = Path("/dev/shm")
#: Microseconds since 1970 of the first and the last moment that Python has.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
INTEGERS = st.sampled_from([0, 1, -1, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63)]) | st.integers(-9, 9)
STRINGS = (
    st.sampled_from(["", "a", "ab", "a" * 32, "a" * 32 + "b", "a" * 33 + "b", "a" * 31 + "b", "a" * 32 + LAST + "a"])
    | st.sampled_from(["'", '"', "a b", "a%20b", "a/b", "a=b", "..", "ü", "a\\b", "null", " a", "a+b", "\n", "x:y"])
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
)
MOMENTS = st.sampled_from([0, 1, 999, 1000, 1001, -1, -999, -1000, FIRST_US, LAST_US]) | st.integers(FIRST_US, LAST_US)
FLOATS = st.floats(allow_nan=False)  # a NaN with a sign is before all numbers for delta-rs, and behind them for others
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": INTEGERS,
    "y": st.integers(-128, 127),
    "f": st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, 5e-324, 1e300]) | FLOATS,
    "g": st.sampled_from([math.nan, math.inf, 0.0, -0.0, 1.5]) | st.floats(width=32, allow_nan=False),
    "d": st.decimals(Decimal("-9999999999.99"), Decimal("9999999999.99"), places=2),
    "w": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda digits: Decimal(f"{digits}E-10"))
    | st.decimals(-2, 2, places=10),
    "s": STRINGS,
    "b": st.booleans(),
    "t": st.dates(),
    "u": MOMENTS,
    "n": MOMENTS,
    "x": st.binary(max_size=4),
    "l": st.lists(st.integers(0, 9), max_size=2),
    "r": st.fixed_dictionaries({"a": st.none() | INTEGERS, "s": st.none() | STRINGS}),
}
ROWS = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})
#: Columns of predicates, with their types.
COLUMNS = {
    **{field.name: field.type for field in SCHEMA if field.name not in {"id", "r", "x", "l"}},
    "r.a": pa.int64(),
    "r.s": pa.string(),
}
PARTITIONS = (("y",), ("d",), ("s",), ("b",), ("t",), ("u",), ("n",), ("s", "y"), ("t", "b"))


@dataclass(frozen=True)
class Case:
    """Rows in files, and what readers are asked for."""

    parts: list[list[dict[str, Any]]]
    partition_by: tuple[str, ...]
    row_group_bytes: int
    predicates: list[Predicate]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Few rows in several files, as each file may be skipped; what is asked for is mostly there."""
    parts = draw(st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=3))
    rows = [row for part in parts for row in part]
    predicates = []
    for column in draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=3, max_size=6)):
        value = value_at(draw(st.sampled_from(rows)), column)
        if value is None:
            name, *fields = column.split(".")
            value = draw(VALUES[name] if not fields else INTEGERS if fields == ["a"] else STRINGS)
        predicates.append(Predicate(column, draw(st.sampled_from(OPERATORS)), value))
    partition_by = draw(st.sampled_from([(), *PARTITIONS]))
    if "d" in partition_by:  # delta-rs 1.6.6 makes no dataset of a table with a partition below zero
        parts = [[{**row, "d": row["d"] and abs(row["d"])} for row in part] for part in parts]
    return Case(parts, partition_by, draw(st.sampled_from([1, 1 << 20])), predicates)


def value_at(row: dict[str, Any], column: str) -> Any:
    """The value of a column, or of a field of a struct."""
    name, *fields = column.split(".")
    value = row[name]
    for field in fields:
        value = None if value is None else value[field]
    return value


@contextmanager
def table_of(
    schema: pa.Schema,
    parts: Iterable[pa.RecordBatch],
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] = MappingProxyType({}),
    row_group_bytes: int = 1 << 20,
) -> Iterator[Opened]:
    """A table with these rows, each part in files of its own."""
    wanted = statistics_columns(properties)
    layout = FileLayout(schema, tuple(partition_by), row_group_bytes=row_group_bytes, statistics_columns=wanted)
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        table = DeltaTable.create(folder, schema, partition_by=list(partition_by), configuration=dict(properties))
        store = open_store(folder, HadoopSettings())
        files = [file for rows in parts for file in written(store, layout, rows)]
        now_ms = int(time.time() * 1000)
        table.create_write_transaction(
            [add_action(file) for file in files],
            "append",
            table.schema(),
            table.metadata().partition_columns,
            commit_properties=CommitProperties(app_transactions=[Transaction("q", 0, now_ms)]),
        )
        yield Opened(DeltaTable(folder))


def conformed_parts(case: Case) -> Iterator[pa.RecordBatch]:
    """The rows of the case. ``id`` is the place of a row in all parts."""
    begin = 0
    for part in case.parts:
        columns = {name: [row[name] for row in part] for name in VALUES} | {"id": range(begin, begin + len(part))}
        arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
        found = conformed(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), SCHEMA, case.partition_by)
        assert found.bad == {}
        yield found.rows
        begin += len(part)


EVERYTHING = list(HealthCheck)


@settings(max_examples=25, phases=[Phase.generate], suppress_health_check=EVERYTHING)
@given(cases())
def test_readers_find_every_row(case: Case) -> None:
    """By predicates on columns, fields of structs and partition columns, over files with row groups of any size."""
    rows = [row for part in case.parts for row in part]
    table = table_of(SCHEMA, conformed_parts(case), case.partition_by, row_group_bytes=case.row_group_bytes)
    with table as opened:
        assert opened.count() == len(rows)
        for predicate in case.predicates:
            values = [value_at(row, predicate.column) for row in rows]
            if predicate.column in case.partition_by:
                values = [value or None if isinstance(value, str) else value for value in values]
            for reader in (one for one in READERS if one.takes(predicate)):
                expected = [place for place, value in enumerate(values) if predicate.holds(value, reader.order)]
                found = reader.find(opened, predicate, COLUMNS[predicate.column])
                assert found == expected, (reader.name, predicate, case.partition_by)


@pytest.mark.parametrize("number", [None, "3", "36", "-1"])
@pytest.mark.parametrize("partition_by", [(), ("p",)])
def test_readers_find_rows_by_every_column_of_a_wide_table(number: str | None, partition_by: tuple[str, ...]) -> None:
    """However many columns have statistics by the table's property, and whichever columns readers count for it."""
    columns = ["id", "p", *(f"c{place}" for place in range(40))]
    schema = pa.schema([("x", pa.binary()), ("r", STRUCT), *((name, pa.int64()) for name in columns)])
    rows = [{"x": b"", "r": {"a": place, "s": ""}} | dict.fromkeys(columns, place) for place in range(2)]
    parts = [pa.RecordBatch.from_pylist([row], schema) for row in rows]
    properties = {"delta.dataSkippingNumIndexedCols": number} if number else {}
    with table_of(schema, parts, partition_by, properties) as opened:
        for column in columns[:6] + columns[26:36]:  # around the last one that has any, by each way to count them
            for reader in READERS:
                assert reader.find(opened, Predicate(column, "=", 1), pa.int64()) == [1], (reader.name, column)


@pytest.mark.parametrize("name", ["a b", "é-Ж_1", "select"])
def test_readers_find_rows_by_a_partition_column_of_any_name(name: str) -> None:
    """polars looks for the name of the column in the directory."""
    schema = pa.schema([("id", pa.int64()), (name, pa.string())])
    with table_of(schema, [pa.record_batch([[0, 1, 2], ["x y", "é", None]], schema=schema)], [name]) as opened:
        asked = [Predicate(name, "=", "x y"), Predicate(name, "=", "é"), Predicate(name, "is null")]
        for reader in READERS:
            assert [reader.find(opened, one, pa.string()) for one in asked] == [[0], [1], [2]], reader.name


#: Files of rows with a struct: null itself, with fields that are null, and with values.
STRUCTS: tuple[tuple[pa.DataType, list[list[Any]]], ...] = (
    (STRUCT, [[None], [{"a": None, "s": None}], [{"a": 1, "s": "a"}, None]]),
    (
        pa.struct({"q": pa.struct({"x": pa.string(), "y": pa.int32()}), "w": pa.int64()}),
        [[None], [{"q": None, "w": 5}], [{"q": {"x": "s", "y": 1}, "w": None}, None]],
    ),
    (pa.struct({"x": pa.binary(), "l": pa.list_(pa.int32())}), [[None], [{"x": None}], [{"x": b"s", "l": [1]}, None]]),
)


@pytest.mark.parametrize(("type_", "parts"), STRUCTS, ids=["flat", "nested", "without bounds"])
def test_readers_find_structs_that_are_null(type_: pa.DataType, parts: list[list[Any]]) -> None:
    """Also in a file in which none of its fields has a value, and so no bounds, beside a column that has."""
    schema, values = pa.schema({"c": type_, "id": pa.int64()}), [value for part in parts for value in part]
    places = iter(range(len(values)))
    rows = [pa.RecordBatch.from_pylist([{"id": next(places), "c": one} for one in part], schema) for part in parts]
    with table_of(schema, rows) as opened:
        for asked in (Predicate("c", "is null"), Predicate("c", "is not null")):
            expected = [place for place, value in enumerate(values) if asked.holds(value, float)]
            for reader in READERS:
                assert reader.find(opened, asked, type_) == expected, (reader.name, asked)
