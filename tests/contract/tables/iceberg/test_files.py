"""Data files of Iceberg tables: readers that skip files by what manifests have of them find every row."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import expressions as by
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    parse_transform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
)

from spark_eos.errors import EosError
from spark_eos.pipelines.tables.iceberg.columns import FIELD_ID, arrow_schema
from spark_eos.pipelines.tables.keys import Key, by_key, value_of
from spark_eos.pipelines.tables.values import conformed
from tests.support.runs.input_counts import COUNTS
from tests.support.tables.delta_files import micro_batch
from tests.support.tables.table_kinds import Iceberg, written

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
EXTREMES = (date.min, date.max, -62_135_596_800_000_000, 253_402_300_799_999_999)
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
#: What no value of `VALUES` is too large for.
PARTITIONS += [
    "year(t), month(u)",
    "month(t), year(n)",
    "bucket(3, i), bucket(5, u)",
    "bucket(7, l), bucket(2, m), bucket(4, t)",
    "bucket(16, s), bucket(1, x)",
    "truncate(8, i), truncate(2, s)",
    "truncate(9, m), truncate(1, x), truncate(64, l)",
]


def columns_of(partition_by: str) -> list[str]:
    """The columns that a table is partitioned by, or all columns."""
    return re.findall(r"\b[a-z]\b", partition_by) or SCHEMA.names


def row(number: int) -> dict[str, Any]:
    return {name: values[number] if number < len(values) else None for name, values in VALUES.items()}


def table_of(kind: Iceberg, partition_by: str) -> Table:
    """A table with a file for each row."""
    place = kind.place(partitionBy=partition_by)
    target = place.target(place.new_columns(SCHEMA).schema, create=True)
    files = []
    for number in range(FILES):
        fit = conformed(pa.RecordBatch.from_pylist([row(number)], SCHEMA), target.layout.schema)
        assert not fit.bad
        files += written(target.store(), target.layout, fit.rows, task=number)
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
    """By statistics, or by partitions of every kind; all rows come back as they were written."""
    table = table_of(Iceberg(tmp_path), partition_by)
    rows = sorted(repr(each) for each in table.scan().to_arrow().to_pylist())
    assert rows == sorted(repr(each) for each in pa.Table.from_pylist(list(map(row, range(FILES))), SCHEMA).to_pylist())
    for number in range(FILES):
        for column in columns_of(partition_by):
            value = row(number)[column]
            for expression in filters(column, value, SCHEMA.field(column).type):
                try:
                    found = [Path(task.file.file_path).name for task in table.scan(expression).plan_files()]
                except OverflowError:  # pyiceberg looks for the day before the first one, and after the last one
                    assert value in EXTREMES
                    continue
                assert any(name.startswith(f"eos-q-0-{number}-") for name in found), expression


@pytest.mark.parametrize("partition_by", PARTITIONS[-7:])
def test_polars_finds_each_row_by_the_columns_of_its_partition(tmp_path, partition_by) -> None:
    """It plans by pyiceberg, and reads by itself."""
    scan = polars.scan_iceberg(table_of(Iceberg(tmp_path), partition_by).metadata_location)
    for column in set(columns_of(partition_by)) - {"m", "x"}:
        for number in range(FILES):
            value = pa.scalar(row(number)[column], SCHEMA.field(column).type).as_py()
            same = polars.col(column).is_null() if value is None else polars.col(column) == value
            found = scan.filter(same).select(column).collect()
            assert found.rows() == [(value,)], (column, value)


def test_what_is_far_away_is_skipped(tmp_path) -> None:
    """Otherwise the bounds would be for nothing."""
    table = table_of(Iceberg(tmp_path), "")
    assert len(list(table.scan(by.EqualTo("i", 5)).plan_files())) == 1
    assert len(list(table.scan(by.EqualTo("s", "b")).plan_files())) == 0
    assert len(list(table.scan(by.IsNull("l")).plan_files())) == 1
    assert len(list(table.scan(by.IsNaN("f")).plan_files())) == 1


def test_a_table_that_somebody_else_has_partitioned_is_written_by_its_fields(tmp_path) -> None:
    """Under the names that it gives them; by each of its transforms the rows are found again."""
    kind = Iceberg(tmp_path)
    place = kind.place()
    place.target(place.new_columns(SCHEMA).schema, create=True)
    with kind.load().update_spec() as update:
        update.add_field("s", BucketTransform(4), "of_s").add_field("l", TruncateTransform(16), "of_l")
        update.add_field("u", MonthTransform(), "of_u")
    table = table_of(kind, "")
    assert [field.name for field in table.spec().fields] == ["of_s", "of_l", "of_u"]
    for number in range(FILES - 1):
        found = table.scan(by.And(by.EqualTo("s", VALUES["s"][number]), by.EqualTo("l", VALUES["l"][number])))
        assert found.to_arrow().column("i").to_pylist() == [VALUES["i"][number]]


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


DAY_US = 86_400_000_000
#: Values at the ends of a type, of the years that Python has, and around 1970.
ENDS = [0, 1, -1, *((sign << bits) + more for bits in (31, 63) for sign in (-1, 1) for more in (-1, 0, 1, 7))]
YEARS = [day + more for day in (-719_162, 2_932_896, 0) for more in (-1, 0, 1)]
TIMES = ("identity", "year", "month", "day", "hour", "bucket[7]")
CUT = ("identity", "bucket[7]", "bucket[4096]", "truncate[1]", "truncate[10]", "truncate[999999999]")
OF_TYPES: dict[pa.DataType, tuple[IcebergType, tuple[str, ...]]] = {
    pa.int32(): (IntegerType(), CUT),
    pa.int64(): (LongType(), CUT),
    pa.decimal128(9, 2): (DecimalType(9, 2), CUT),
    pa.decimal128(38, 0): (DecimalType(38, 0), CUT),
    pa.date32(): (DateType(), tuple(name for name in TIMES if name != "hour")),
    UTC: (TimestamptzType(), TIMES),
    pa.string(): (StringType(), CUT),
    pa.binary(): (BinaryType(), CUT[1:]),
}


def extreme(random: Random, type_: pa.DataType) -> Any:
    """A value of the type as pyiceberg takes it: a decimal, or a whole number, of days or microseconds for times."""
    if random.random() < 0.1:
        return None
    if pa.types.is_string(type_):
        return "".join(random.choices("aä€🛫\0", k=random.randrange(14)))
    if pa.types.is_binary(type_):
        return random.randbytes(random.randrange(14))
    if pa.types.is_decimal(type_):
        digits = random.choice([10**type_.precision - 1, random.randrange(10**type_.precision), random.randrange(30)])
        return Decimal((random.randrange(2), tuple(map(int, str(digits))), -type_.scale))
    bits = 32 if type_ in (pa.int32(), pa.date32()) else 64
    if pa.types.is_temporal(type_) and random.random() < 0.6:
        return random.choice(YEARS) * (DAY_US if bits == 64 else 1) + random.randrange(-2, 2)
    chosen = random.choice([*ENDS, random.randrange(-(1 << bits - 1), 1 << bits - 1)])
    return min(max(chosen, -(1 << bits - 1)), (1 << bits - 1) - 1)


def can_be_committed(transform: Transform[Any, Any], theirs: IcebergType, value: Any) -> bool:
    """By pyiceberg alone: it has the value's partition, can put it into a manifest, and can name it in a summary."""
    try:
        key = transform.transform(theirs)(value)
        kind = transform.result_type(theirs)
        if key is not None:
            assert from_bytes(kind, to_bytes(kind, key)) == key
        transform.to_human_string(theirs, key)
    except (OverflowError, struct.error, ValueError):
        return False
    return not isinstance(kind, DecimalType) or key is None or len(key.as_tuple().digits) <= kind.precision


def has_year(type_: pa.DataType, value: Any) -> bool:
    """Whether a date or a timestamp is in the years 1 to 9999, which tables take; true for other types."""
    if value is None or not pa.types.is_temporal(type_):
        return True
    return -719_162 <= value // (1 if type_ == pa.date32() else DAY_US) <= 2_932_896


@COUNTS
def test_rows_that_pyiceberg_cannot_commit_are_named_and_the_others_keep_their_keys(count) -> None:
    """By any transform, of values at the ends of their types; and each row by itself. A key's text stands for it."""
    refused = kept = 0
    for seed in range(count):
        random = Random(seed)
        type_ = random.choice(list(OF_TYPES))
        theirs, names = OF_TYPES[type_]
        transform = parse_transform(random.choice(names))
        key = Key("k", "c", str(transform))
        values = [extreme(random, type_) for _ in range(random.randrange(6))]
        stored = pa.int32() if type_ == pa.date32() else pa.int64() if type_ == UTC else type_
        rows = pa.RecordBatch.from_arrays([pa.array(values, stored).view(type_)], schema=pa.schema({"c": type_}))
        expected = {
            place
            for place, one in enumerate(values)
            if not (has_year(type_, one) and can_be_committed(transform, theirs, one))
        }
        fit = conformed(rows, rows.schema, keys=(key,))
        assert set(fit.bad) == expected, (type_, key, values)
        theirs_keys = [transform.transform(theirs)(one) for n, one in enumerate(values) if n not in expected]
        assert key.values(fit.rows.column("c")).to_pylist() == theirs_keys, (type_, key, values)
        texts = [text for (text,), _ in by_key(fit.rows, [key])]
        assert {value_of(text, type_, key.transform) for text in texts} == set(theirs_keys), (type_, key, values)
        refused, kept = refused + len(expected), kept + len(theirs_keys)
    assert refused > count // 10 and kept > count


@pytest.mark.parametrize(
    ("partition_by", "says"),
    [
        ("nowhere", "its columns are"),
        ("bucket(i)", "by which no files are written"),
        ("bucket(0, i)", "by which no files are written"),
        ("day(3, t)", "by which no files are written"),
        ("bucket(3, b)", "the column is"),
        ("bucket(3, d)", "the column is"),
        ("truncate(3, t)", "the column is"),
        ("month(i)", "the column is"),
        ("day(i)", "the column is"),
        ("hour(t)", "the column is"),
        ("d", "the column is"),
        ("x", "the column is"),
        ("r", "the column is"),
        ("s, s", "Two columns have the name"),
    ],
)
def test_partitions_that_are_not_written_are_refused(tmp_path, partition_by, says) -> None:
    """And no table is created."""
    kind = Iceberg(tmp_path)
    with pytest.raises(EosError) as error:
        table_of(kind, partition_by)
    assert says in error.value.message and not kind.is_there()
