"""Data files of Iceberg tables: readers that skip files by what manifests have of them find every row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import expressions as by
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, HourTransform
from pyiceberg.types import DateType, TimestamptzType

from spark_eos.errors import EosError
from spark_eos.tables.files import Attempt, FileWriter
from spark_eos.tables.iceberg.columns import FIELD_ID, arrow_schema
from spark_eos.tables.keys import Key, by_key
from spark_eos.tables.partitions import NoPartition
from spark_eos.tables.values import conformed
from tests.support.delta_files import micro_batch
from tests.support.table_kinds import Iceberg

UTC = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    {
        "i": pa.int32(),
        "l": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "m": pa.decimal128(38, 10),
        "s": pa.string(),
        "b": pa.bool_(),
        "t": pa.date32(),
        "u": UTC,
        "n": pa.timestamp("us"),
        "x": pa.binary(),
        "r": pa.struct({"a": pa.int64(), "s": pa.string()}),
        "e": pa.list_(pa.field("element", pa.int64())),
        "p": pa.map_(pa.string(), pa.int64()),
    }
)
HUGE = Decimal("9" * 28 + "." + "9" * 10)
#: By column, a value for each file; the last file has null everywhere.
VALUES: dict[str, list[Any]] = {
    "i": [0, -(1 << 31), (1 << 31) - 1, 5],
    "l": [(1 << 53) + 1, -(1 << 63), (1 << 63) - 1, 0],
    "f": [0.0, math.nan, -0.0, 1.5],  # by an infinity, pyiceberg finds no float
    "d": [-0.0, math.inf, 5e-324, -math.inf],
    "m": [HUGE, HUGE.copy_negate(), Decimal("0.0000000001"), Decimal("-1.5200000000")],
    "s": ["", "a" * 40, "a" * 32 + "\U0010ffff" * 3, "__HIVE_DEFAULT_PARTITION__/ü=%20"],
    "b": [True, False, True, False],
    "t": [date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31), date(1970, 1, 1)],
    "u": [-1, 0, 1_714_567_890_123_456, -62_135_596_800_000_000],
    "n": [999, 1001, -86_400_000_001, 253_402_300_799_999_999],
    "x": [b"", b"\xff", b"a", b"\x00"],
    "r": [{"a": 1, "s": "x"}, {"a": None, "s": "y" * 40}, None, {"a": -5, "s": ""}],
    "e": [[], [1, None], [2], None],
    "p": [{}, {"k": 1}, {"k": None}, None],
}
FILES = 5
PARTITIONS = ["", "s", "i, b", "t", "u", "m", "day(u)", "hour(n)", "day(t), l", "hour(u), day(n)"]


def row(number: int) -> dict[str, Any]:
    return {name: values[number] if number < len(values) else None for name, values in VALUES.items()}


def table_of(kind: Iceberg, partition_by: str) -> Table:
    """A table with a file for each row."""
    place = kind.place(kind.folder / "c", partitionBy=partition_by)
    target = place.target(place.new_columns(SCHEMA).schema, create=True)
    files = []
    for number in range(FILES):
        fit = conformed(pa.RecordBatch.from_pylist([row(number)], SCHEMA), target.layout.schema)
        assert not fit.bad
        with FileWriter(target.store(), target.layout, Attempt("q", 0, number, 0)) as writer:
            writer.write(fit.rows)
            files += writer.close()
    target.commit(micro_batch(0), files, FILES, is_there=False)
    return kind.load()


def filters(column: str, value: Any, type_: pa.DataType) -> Iterator[by.BooleanExpression]:
    """What a row with this value is to be found by."""
    if value is None:
        yield by.IsNull(column)
        return
    yield by.NotNull(column)
    if isinstance(value, float) and math.isnan(value):
        yield by.IsNaN(column)
        return
    if isinstance(value, dict | list | bytes):
        return
    if pa.types.is_timestamp(type_):
        value = pa.scalar(value, type_).cast(pa.string()).as_py().replace(" ", "T").replace("Z", "+00:00")
    yield from (test(column, value) for test in (by.EqualTo, by.LessThanOrEqual, by.GreaterThanOrEqual))


@pytest.mark.parametrize("partition_by", PARTITIONS)
def test_no_file_of_a_row_is_skipped(tmp_path, partition_by) -> None:
    """By statistics, and by partitions of every kind; all rows come back as they were written."""
    table = table_of(Iceberg(tmp_path), partition_by)
    rows = sorted(repr(each) for each in table.scan().to_arrow().to_pylist())
    assert rows == sorted(repr(each) for each in pa.Table.from_pylist(list(map(row, range(FILES))), SCHEMA).to_pylist())
    for number in range(FILES):
        for column, value in row(number).items():
            for expression in filters(column, value, SCHEMA.field(column).type):
                found = [Path(task.file.file_path).name for task in table.scan(expression).plan_files()]
                assert any(name.startswith(f"eos-q-0-{number}-") for name in found), expression


def test_what_is_far_away_is_skipped(tmp_path) -> None:
    """Otherwise the bounds would be for nothing."""
    table = table_of(Iceberg(tmp_path), "")
    assert len(list(table.scan(by.EqualTo("i", 5)).plan_files())) == 1
    assert len(list(table.scan(by.EqualTo("s", "b")).plan_files())) == 0
    assert len(list(table.scan(by.IsNull("l")).plan_files())) == 1
    assert len(list(table.scan(by.IsNaN("f")).plan_files())) == 1


def test_every_field_of_a_file_has_its_id(tmp_path) -> None:
    """Those within structs, lists and maps, too: by these, a renamed column is found again."""
    table = table_of(Iceberg(tmp_path), "")
    (file, *_) = (Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files())
    written, there = pq.read_schema(file), arrow_schema(table.schema())

    def ids(type_: pa.DataType) -> list[Any]:
        # The struct of a map's keys and values has none.
        fields = [type_.field(place) for place in range(type_.num_fields)]
        return [[(field.metadata or {}).get(FIELD_ID), *ids(field.type)] for field in fields]

    assert ids(pa.struct(list(written))) == ids(pa.struct(list(there)))
    with table.update_schema() as update:
        update.rename_column("s", "renamed")
    read = Iceberg(tmp_path).load().scan(selected_fields=("renamed",)).to_arrow()
    assert sorted(map(str, read.column("renamed").to_pylist())) == sorted(map(str, [*VALUES["s"], None]))


@given(st.lists(st.none() | st.integers(-(1 << 62), 1 << 62)))
def test_days_and_hours_are_those_of_pyiceberg(moments) -> None:
    """Below 1970, too. What does not fit is refused."""
    column = pa.array(moments, UTC)
    for transform, theirs in (("day", DayTransform()), ("hour", HourTransform())):
        expected = [None if one is None else theirs.transform(TimestamptzType())(one) for one in moments]
        if any(one is not None and abs(one) >= 1 << 31 for one in expected):
            with pytest.raises(NoPartition):
                Key("k", "c", transform).of(column)
        else:
            assert Key("k", "c", transform).of(column).to_pylist() == expected
    days = pa.array([None if one is None else one % (1 << 31) for one in moments], pa.int32()).cast(pa.date32())
    expected = [None if one is None else DayTransform().transform(DateType())(one % (1 << 31)) for one in moments]
    assert Key("k", "c", "day").of(days).to_pylist() == expected


def test_rows_are_split_by_keys_in_their_order() -> None:
    """With all columns."""
    batch = pa.RecordBatch.from_pydict({"s": ["a", "", None, "a", "None"], "n": [1, 2, 3, 4, 5]})
    found = {keys: rows.to_pydict() for keys, rows in by_key(batch, [Key("k", "s")])}
    assert found == {
        ("a",): {"s": ["a", "a"], "n": [1, 4]},
        ("",): {"s": [""], "n": [2]},
        (None,): {"s": [None], "n": [3]},
        ("None",): {"s": ["None"], "n": [5]},
    }
    assert list(by_key(batch.slice(0, 0), [Key("k", "s")])) == []


@pytest.mark.parametrize(
    ("partition_by", "entry"),
    [
        ("nowhere", "EOS_TABLE_COLUMNS.partition"),
        ("bucket(i)", "EOS_OPTION_INVALID.partition_transform"),
        ("day(i)", "EOS_TABLE_COLUMNS.partition_type"),
        ("hour(t)", "EOS_TABLE_COLUMNS.partition_type"),
        ("d", "EOS_TABLE_COLUMNS.partition_type"),
        ("x", "EOS_TABLE_COLUMNS.partition_type"),
        ("r", "EOS_TABLE_COLUMNS.partition_type"),
        ("s, s", "EOS_TABLE_COLUMNS.twice"),
    ],
)
def test_partitions_that_are_not_written_are_refused(tmp_path, partition_by, entry) -> None:
    """And no table is created."""
    kind = Iceberg(tmp_path)
    with pytest.raises(EosError) as error:
        table_of(kind, partition_by)
    assert error.value.entry == entry and not kind.is_there()
