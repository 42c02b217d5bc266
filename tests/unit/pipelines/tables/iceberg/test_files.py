"""Data files of Iceberg tables: readers that skip files by what manifests have of them find every row."""

from __future__ import annotations

import math
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
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import expressions as by
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
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
from spark_eos.pipelines.tables import keys
from spark_eos.pipelines.tables.files import Attempt, FileWriter
from spark_eos.pipelines.tables.iceberg.columns import FIELD_ID, arrow_schema
from spark_eos.pipelines.tables.keys import Key, by_key, value_of
from spark_eos.pipelines.tables.partitions import NoPartition
from spark_eos.pipelines.tables.values import conformed
from tests.support.runs.input_counts import COUNTS
from tests.support.tables.delta_files import micro_batch
from tests.support.tables.table_kinds import Iceberg

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
    for column in ("i", "l", "s", "t", "u", "n"):
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


def test_manifests_have_the_keys_of_files(tmp_path) -> None:
    """By the table's partition fields, which have the names that Spark gives them."""
    kind = Iceberg(tmp_path)
    table = table_of(kind, "bucket(64, s), truncate(8, l), month(u)")
    entries = [task.file for task in table.scan().plan_files()]
    partitions = {tuple(file.partition[n] for n in range(3)) for file in entries}
    assert len(partitions) == FILES and (None, None, None) in partitions
    assert tuple(field.name for field in table.spec().fields) == ("s_bucket", "l_trunc", "u_month")
    assert [str(field.transform) for field in table.spec().fields] == ["bucket[64]", "truncate[8]", "month"]


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


INTEGERS = st.sampled_from([34, -1, 0]) | st.integers(-(1 << 31), (1 << 31) - 1)
LONGS = INTEGERS | st.integers(-(1 << 63), (1 << 63) - 1)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20, places=3)
TRANSFORMED: list[tuple[pa.DataType, IcebergType, st.SearchStrategy[Any]]] = [
    (pa.int32(), IntegerType(), INTEGERS),
    (pa.int64(), LongType(), LONGS),
    (pa.decimal128(30, 3), DecimalType(30, 3), DECIMALS),
    (pa.string(), StringType(), st.text()),
    (pa.binary(), BinaryType(), st.binary()),
]


@pytest.mark.parametrize(("type_", "theirs", "values"), TRANSFORMED, ids=lambda each: str(each)[:12])
@given(data=st.data(), size=st.sampled_from([1, 2, 10, 4096, 999_999_999]))
@settings(max_examples=40)
def test_buckets_and_truncated_values_are_those_of_pyiceberg(type_, theirs, values, data, size) -> None:
    """Null where the value is; what does not fit when it is rounded down is refused."""
    given_values = data.draw(st.lists(st.none() | values, max_size=8))
    column = pa.array(given_values, type_)
    hashed = _by(BucketTransform(size), theirs, given_values)
    assert Key("k", "c", f"bucket[{size}]").of(column).to_pylist() == hashed
    cut = _by(TruncateTransform(size), theirs, given_values)
    least = {pa.int32(): -(1 << 31), pa.int64(): -(1 << 63)}.get(type_)
    if least is not None and any(one is not None and one < least for one in cut):
        with pytest.raises(NoPartition):
            Key("k", "c", f"truncate[{size}]").of(column)
    else:
        key = Key("k", "c", f"truncate[{size}]")
        assert key.of(column).to_pylist() == cut
        texts = [keys[0] for keys, _ in by_key(pa.RecordBatch.from_arrays([column], names=["c"]), [key])]
        assert {value_of(text, type_, key.transform) for text in texts} == set(cut)


def _by(transform: Transform[Any, Any], type_: IcebergType, values: list[Any]) -> list[Any]:
    return [transform.transform(type_)(value) for value in values]


def test_hashes_are_those_of_the_specification() -> None:
    """Its examples, by a number of buckets that leaves them as they are, but for the sign."""
    most = (1 << 31) - 1
    expected = {
        pa.scalar(34, pa.int32()): 2017239379,
        pa.scalar(34, pa.int64()): 2017239379,
        pa.scalar(Decimal("14.20"), pa.decimal128(9, 2)): -500754589,
        pa.scalar(date(2017, 11, 16), pa.date32()): -653330422,
        pa.scalar(1_510_871_468_000_000, pa.timestamp("us")): -2047944441,
        pa.scalar("iceberg", pa.string()): 1210000089,
        pa.scalar(bytes([0, 1, 2, 3]), pa.binary()): -188683207,
    }
    for value, hash_ in expected.items():
        assert keys._bucket(pa.array([value.as_py()], value.type), most).to_pylist() == [(hash_ & most) % most]


@given(st.lists(st.none() | st.integers(-719_162, 2_932_896)))
def test_years_and_months_are_those_of_pyiceberg(days) -> None:
    """Of dates and of the last microsecond of a day, below 1970, too."""
    dates = pa.array(days, pa.int32()).cast(pa.date32())
    moments = [None if one is None else (one + 1) * 86_400_000_000 - 1 for one in days]
    for name, theirs in (("year", YearTransform()), ("month", MonthTransform())):
        assert Key("k", "c", name).of(dates).to_pylist() == _by(theirs, DateType(), days)
        assert Key("k", "c", name).of(pa.array(moments, UTC)).to_pylist() == _by(theirs, TimestamptzType(), moments)


#: Around the first and the last day of the years that Python has.
EDGES = st.integers(-719_164, -719_160) | st.integers(2_932_894, 2_932_899) | st.integers(-9, 9)
DAYS = EDGES | st.integers(-(1 << 31), (1 << 31) - 1)
MOMENTS = EDGES.map(lambda day: day * 86_400_000_000) | st.integers(-(1 << 62), 1 << 62)


@given(st.lists(st.none() | MOMENTS, max_size=3), st.lists(st.none() | DAYS, max_size=3))
def test_days_and_hours_are_those_of_pyiceberg(moments, days) -> None:
    """Below 1970, too. What pyiceberg cannot name in the summary of a commit is refused before."""
    for type_, values, column in (
        (TimestamptzType(), moments, pa.array(moments, UTC)),
        (DateType(), days, pa.array(days, pa.int32()).view(pa.date32())),
    ):
        for name, theirs in (("day", DayTransform()), ("hour", HourTransform()), ("identity", IdentityTransform())):
            key = Key("k", "c", name)
            if key.fits(column.type):
                expected = _by(theirs, type_, values)
                try:
                    for one in expected:
                        theirs.to_human_string(type_, one)
                except OverflowError:
                    with pytest.raises(NoPartition):
                        key.of(column)
                else:
                    assert key.of(column).to_pylist() == expected


DAY_US = 86_400_000_000
#: Values at the ends of a type, of the years that Python has, and around 1970.
ENDS = [0, 1, -1, *((sign << bits) + more for bits in (31, 63) for sign in (-1, 1) for more in (-1, 0, 1, 7))]
YEARS = [day + more for day in (-719_162, 2_932_896, 0) for more in (-1, 0, 1)]
TIMES = ("identity", "year", "month", "day", "hour", "bucket[7]")
CUT = ("identity", "bucket[7]", "truncate[1]", "truncate[10]", "truncate[999999999]")
OF_TYPES: dict[pa.DataType, tuple[IcebergType, tuple[str, ...]]] = {
    pa.int32(): (IntegerType(), CUT),
    pa.int64(): (LongType(), CUT),
    pa.decimal128(9, 2): (DecimalType(9, 2), CUT),
    pa.decimal128(38, 0): (DecimalType(38, 0), CUT),
    pa.date32(): (DateType(), tuple(name for name in TIMES if name != "hour")),
    UTC: (TimestamptzType(), TIMES),
}


def extreme(random: Random, type_: pa.DataType) -> Any:
    """A value of the type as pyiceberg takes it: a decimal, or a whole number, of days or microseconds for times."""
    if random.random() < 0.1:
        return None
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
    """By any transform, of values at the ends of their types; and each row by itself."""
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
        assert key.of(fit.rows.column("c")).to_pylist() == theirs_keys, (type_, key, values)
        refused, kept = refused + len(expected), kept + len(theirs_keys)
    assert refused > count // 10 and kept > count


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
