"""Rows with a table's columns: converted where every value can be checked, and named where it does not fit."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.errors import EosError
from spark_eos.pipelines.tables.values import check_columns, conformed, table_schema
from tests.support.judges.conditions import raises

TIMESTAMP = pa.timestamp("us", "UTC")


def one(
    array: pa.Array, type_: pa.DataType, *, nullable: bool = True, partition: bool = False
) -> tuple[list[Any], dict[int, str]]:
    """The values that fit a column of the type, and the reasons of the others."""
    batch = pa.RecordBatch.from_arrays([array], names=["c"])
    found = conformed(batch, pa.schema([pa.field("c", type_, nullable)]), ("c",) if partition else ())
    found.rows.validate(full=True)
    assert found.rows.schema.field("c").type == type_
    return found.rows.column("c").to_pylist(), dict(found.bad)


def test_columns_are_found_by_their_names_and_get_their_types() -> None:
    """In the table's order; a column that the rows lack is null."""
    schema = pa.schema({"a": pa.int64(), "b": pa.string(), "c": pa.float64()})
    batch = pa.RecordBatch.from_arrays([pa.array([b"x", None]), pa.array([1, 2], pa.int8())], names=["b", "a"])
    found = conformed(batch, schema)
    assert found.rows.schema == schema
    assert found.rows.to_pydict() == {"a": [1, 2], "b": ["x", None], "c": [None, None]}
    assert found.bad == {}


def test_rows_that_fit_are_not_copied() -> None:
    """The usual case costs a look at each string."""
    batch = pa.RecordBatch.from_pydict({"a": [1, 2], "s": ["x", "y"]})
    rows = conformed(batch, batch.schema).rows
    buffers = [buffer.address for column in batch.columns for buffer in column.buffers() if buffer]
    assert [buffer.address for column in rows.columns for buffer in column.buffers() if buffer] == buffers


def test_rows_that_do_not_fit_are_named_and_the_others_stay_in_order() -> None:
    """By their place in the batch and the column; of several columns that do not fit, the first counts."""
    schema = pa.schema([pa.field("a", pa.int32()), pa.field("s", pa.string(), nullable=False)])
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 1 << 40, 3, 4, 1 << 41]), pa.array([b"x", b"y", b"\xff", None, None])], names=["a", "s"]
    )
    found = conformed(batch, schema)
    assert found.rows.to_pydict() == {"a": [1], "s": ["x"]}
    assert found.bad == {
        1: "column a: a value of int64 that int32 cannot hold",
        2: "column s: bytes that are not UTF-8",
        3: "column s: null, where the table has no nulls",
        4: "column a: a value of int64 that int32 cannot hold",
    }


@pytest.mark.parametrize(
    ("array", "type_", "values", "bad"),
    [
        (pa.array([(1 << 63) - 1, 1 << 63], pa.uint64()), pa.int64(), [(1 << 63) - 1], {1}),
        (pa.array([(1 << 53), (1 << 53) + 1]), pa.float64(), [float(1 << 53)], {1}),
        (pa.array([1.5, math.inf], pa.float32()), pa.float64(), [1.5, math.inf], set()),
        (pa.array([127, 128, None], pa.int16()), pa.int8(), [127, None], {1}),
        (pa.array([99999, -5], pa.int32()), pa.decimal128(12, 2), [Decimal("99999.00"), Decimal("-5.00")], set()),
        (pa.array([Decimal("1.50"), Decimal("1.55")]), pa.decimal128(5, 1), [Decimal("1.5")], {1}),
        (pa.array([Decimal("99.9"), Decimal("100.0")]), pa.decimal128(3, 1), [Decimal("99.9")], {1}),
        (pa.array([Decimal(1 << 62), Decimal(1 << 63)], pa.decimal128(38, 0)), pa.int64(), [1 << 62], {1}),
        (pa.array([1000, 1001], pa.timestamp("ns", "UTC")), TIMESTAMP, [datetime(1970, 1, 1, 0, 0, 0, 1, UTC)], {1}),
        (pa.array([1 << 60, 1], pa.timestamp("s", "UTC")), TIMESTAMP, [datetime(1970, 1, 1, 0, 0, 1, 0, UTC)], {0}),
        (pa.array([0], pa.timestamp("ms", "Europe/Berlin")), TIMESTAMP, [datetime(1970, 1, 1, tzinfo=UTC)], set()),
        (pa.array([b"\xc3\xbc", b"\xc3"]), pa.string(), ["ü"], {1}),
        (pa.array([b"a"], pa.binary(1)), pa.binary(), [b"a"], set()),
        (pa.array(["ü"], pa.large_string()), pa.binary(), ["ü".encode()], set()),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string(), ["a", None, "a"], set()),
        (pa.nulls(2), pa.date32(), [None, None], set()),
        (pa.array([[1, 300], None, [], [2]]), pa.list_(pa.int8()), [None, [], [2]], {0}),
        (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), pa.list_(pa.int8()), [[1, 2], None], set()),
        (
            pa.array([{"b": 1, "a": "x"}, None, {"b": 300, "a": "y"}]),
            pa.struct({"a": pa.string(), "b": pa.int8(), "n": pa.int8()}),
            [{"a": "x", "b": 1, "n": None}, None],
            {2},
        ),
        (
            pa.array([[("k", 1)], None, [("k", 300)]], pa.map_(pa.string(), pa.int64())),
            pa.map_(pa.string(), pa.int8()),
            [[("k", 1)], None],
            {2},
        ),
    ],
)
def test_values_are_converted_exactly_or_not_at_all(
    array: pa.Array, type_: pa.DataType, values: list[Any], bad: set[int]
) -> None:
    """Arrow and libraries below would wrap, cut or round these, or write what no reader takes."""
    found, reasons = one(array, type_)
    assert (found, set(reasons)) == (values, bad)


@pytest.mark.parametrize(
    ("given_type", "wanted"),
    [
        (pa.float64(), pa.float32()),  # rounded
        (pa.float64(), pa.int64()),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.int64(), pa.decimal128(18, 0)),
        (pa.timestamp("us"), TIMESTAMP),  # of which zone?
        (TIMESTAMP, pa.timestamp("us")),
        (pa.date32(), TIMESTAMP),
        (pa.binary(16), pa.string()),
        (pa.bool_(), pa.int32()),
        (pa.list_(pa.string()), pa.list_(pa.int64())),
        (pa.struct({"a": pa.string()}), pa.struct({"a": pa.int64()})),
        (pa.map_(pa.string(), pa.string()), pa.map_(pa.string(), pa.int64())),
        (pa.int64(), pa.struct({"a": pa.int64()})),
    ],
)
def test_types_that_do_not_fit_are_refused_before_any_row(given_type: pa.DataType, wanted: pa.DataType) -> None:
    """Whatever the rows are: it is the query that has to be corrected."""
    with raises("EOS_TABLE_COLUMNS.type"):
        one(pa.array([], given_type), wanted)


@pytest.mark.parametrize(
    ("names", "entry"),
    [
        (["a", "B"], "unknown"),
        (["a", "x"], "unknown"),
        (["a", "a"], "twice"),
        (["b"], "missing"),
    ],
)
def test_columns_that_do_not_fit_are_refused(names: list[str], entry: str) -> None:
    """Also such as differ by capital letters, which readers of the file take for null."""
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())])
    batch = pa.RecordBatch.from_arrays([pa.array([1])] * len(names), names=names)
    with raises(f"EOS_TABLE_COLUMNS.{entry}"):
        conformed(batch, schema)


def test_nulls_within_values_are_found() -> None:
    """Where elements, values of maps or fields of structs must not be null. A field of a null struct may be."""
    elements = pa.list_(pa.field("element", pa.int64(), nullable=False))
    assert one(pa.array([[1], [None], None]), elements)[1].keys() == {1}
    values = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))
    assert one(pa.array([[("a", 1)], [("a", None)], None], pa.map_(pa.string(), pa.int64())), values)[1].keys() == {1}
    fields = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    assert one(pa.array([{"a": 1}, {"a": None}, None]), fields)[1].keys() == {1}


def test_what_lies_below_a_null_counts_for_nothing() -> None:
    """Buffers may hold anything there."""
    mask = pa.array([False, True])
    struct = pa.StructArray.from_arrays([pa.array([1, 1 << 40])], names=["a"], mask=mask)
    assert one(struct, pa.struct({"a": pa.int8()})) == ([{"a": 1}, None], {})
    listed = pa.ListArray.from_arrays(pa.array([0, 1, 2]), pa.array([1, 1 << 40]), mask=mask)
    assert one(listed, pa.list_(pa.int8())) == ([[1], None], {})


def test_strings_that_nobody_has_checked_are_checked() -> None:
    """Arrow takes bytes from elsewhere for text without a look."""
    damaged = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
    assert one(damaged, pa.string()) == (["a"], {1: "column c: bytes that are not UTF-8"})
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 2]), damaged)
    assert one(nested, pa.list_(pa.string())) == ([["a"]], {1: "column c: bytes that are not UTF-8"})


def test_decimals_with_too_many_digits_are_found() -> None:
    """Arrow takes them from elsewhere without a look, too."""
    wide = pa.array([Decimal("1.00"), Decimal("12345.00")], pa.decimal128(10, 2))
    damaged = pa.Array.from_buffers(pa.decimal128(3, 2), 2, wide.buffers())
    assert one(damaged, pa.decimal128(3, 2))[1].keys() == {1}


def test_values_that_cannot_be_partitions_are_found() -> None:
    """They would keep readers from opening the table, or be read as null."""
    strings = pa.array(["a", "__HIVE_DEFAULT_PARTITION__", "x" * 300, "", None])
    found, bad = one(strings, pa.string(), partition=True)
    assert (found, set(bad)) == (["a", "", None], {1, 2})
    assert one(pa.array([0, 1 << 62], TIMESTAMP), TIMESTAMP, partition=True)[1].keys() == {1}
    assert one(pa.array(["", "a"]), pa.string(), partition=True, nullable=False)[1].keys() == {0}
    assert one(pa.array([date(2024, 1, 1)]), pa.date32(), partition=True)[1] == {}


@given(
    st.lists(st.one_of(st.none(), st.integers(-300, 300)), max_size=50),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_rows_are_good_or_bad_and_never_both(values: list[int | None], before: int, behind: int) -> None:
    """However many do not fit, and wherever in a larger batch they lie."""
    batch = pa.RecordBatch.from_arrays([pa.array([0] * before + values + [0] * behind, pa.int64())], names=["c"])
    found = conformed(batch.slice(before, len(values)), pa.schema({"c": pa.int8()}))
    fits = [value is None or -128 <= value <= 127 for value in values]
    assert found.rows.column("c").to_pylist() == [value for value, fit in zip(values, fits, strict=True) if fit]
    assert sorted(found.bad) == [place for place, fit in enumerate(fits) if not fit]


@pytest.mark.parametrize(
    ("schema", "partition_by", "entry"),
    [
        (pa.schema({"a": pa.uint8()}), (), "unsupported"),
        (pa.schema({"a": pa.timestamp("ns")}), (), "unsupported"),
        (pa.schema({"a": pa.list_(pa.struct({"t": pa.time64("us")}))}), (), "unsupported"),
        (pa.schema({"a": pa.struct([])}), (), "unsupported"),
        (pa.schema({"a": pa.large_string()}), (), "unsupported"),
        (pa.schema({"a": pa.int8(), "A": pa.int8()}), (), "twice"),
        (pa.schema({"s": pa.struct({"a": pa.int8(), "A": pa.int8()})}), (), "twice"),
        (
            pa.schema({"m": pa.map_(pa.string(), pa.list_(pa.struct([("a", pa.int8()), ("a", pa.int8())])))}),
            (),
            "twice",
        ),
        (pa.schema({"s": pa.struct({"a\0b": pa.int8()})}), (), "name"),
        (pa.schema({"a": pa.int8()}), ("b",), "partition by b: its columns are a"),
        (pa.schema({"a": pa.int8(), "b": pa.float64()}), ("b",), "partition by b: the column is double"),
        (pa.schema({"a": pa.int8()}), ("a",), "partition by a: these are all"),
    ],
)
def test_columns_that_files_cannot_have_are_refused(
    schema: pa.Schema, partition_by: tuple[str, ...], entry: str
) -> None:
    """At the start, before any row."""
    with pytest.raises(EosError) as caught:
        check_columns(schema, partition_by)
    entry, by, says = entry.partition(" by ")
    assert caught.value.entry == f"EOS_TABLE_COLUMNS.{entry}" and by + says in caught.value.message


def test_all_types_of_tables_are_taken() -> None:
    """As Delta has them."""
    plain = {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "decimal": pa.decimal128(38, 38),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": TIMESTAMP,
        "timestamp_ntz": pa.timestamp("us"),
    }
    nested = {"list": pa.list_(pa.struct(plain)), "map": pa.map_(pa.string(), pa.list_(pa.int8()))}
    check_columns(pa.schema({**plain, **nested}), [name for name in plain if name not in {"float", "double", "binary"}])


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (pa.array([0, 255, None], pa.uint8()), pa.int16()),
        (pa.array([0, 65535], pa.uint16()), pa.int32()),
        (pa.array([0, (1 << 32) - 1], pa.uint32()), pa.int64()),
        (pa.array([0, (1 << 64) - 1, None], pa.uint64()), pa.decimal128(20, 0)),
        (pa.array(["a", None], pa.large_string()), pa.string()),
        (pa.array(["a", None], pa.string_view()), pa.string()),
        (pa.array(["a", "b", "a"]).dictionary_encode(), pa.string()),
        (pa.array([b"a"], pa.large_binary()), pa.binary()),
        (pa.array([b"ab"], pa.binary(2)), pa.binary()),
        (pa.array([1.5, None], pa.float16()), pa.float32()),
        (pa.array([1, -1], pa.timestamp("s")), pa.timestamp("us")),
        (pa.array([1, -1], pa.timestamp("ms", "Asia/Tokyo")), TIMESTAMP),
        (pa.array([Decimal("1.5")], pa.decimal256(38, 2)), pa.decimal128(38, 2)),
        (pa.array([[1], None], pa.large_list(pa.uint8())), pa.list_(pa.field("element", pa.int16()))),
        (pa.array([{"a": [1]}], pa.struct({"a": pa.list_(pa.uint8(), 1)})), pa.struct({"a": pa.list_(pa.int16())})),
        (pa.array([[("k", 1)]], pa.map_(pa.large_string(), pa.uint8())), pa.map_(pa.string(), pa.int16())),
    ],
)
def test_a_table_that_is_created_holds_every_value(array: pa.Array, wanted: pa.DataType) -> None:
    """Types that tables do not have become those that hold as much; all columns may be null."""
    batch = pa.RecordBatch.from_arrays([array], schema=pa.schema([pa.field("c", array.type, nullable=False)]))
    schema = table_schema(batch.schema)
    check_columns(schema)
    assert schema.field("c").nullable and schema.field("c").type == wanted
    found = conformed(batch, schema)
    assert (found.rows.column("c").to_pylist(), found.bad) == (array.to_pylist(), {})


@pytest.mark.parametrize("type_", [pa.null(), pa.time64("us"), pa.decimal256(39, 0), pa.list_(pa.null())])
def test_types_that_no_table_has_stay_and_are_refused(type_: pa.DataType) -> None:
    """By their names."""
    with raises("EOS_TABLE_COLUMNS.unsupported", "column c has the type"):
        check_columns(table_schema(pa.schema({"c": type_})))


@pytest.mark.parametrize(
    ("type_", "first", "last"),
    [
        (pa.date32(), date(1, 1, 1), date(9999, 12, 31)),
        (pa.timestamp("us"), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)),
        (TIMESTAMP, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)),
    ],
    ids=str,
)
@pytest.mark.parametrize("partition", [False, True])
def test_a_date_that_no_reader_has_is_rejected_at_any_depth(
    type_: pa.DataType, first: Any, last: Any, partition: bool
) -> None:
    """Those of the years 1 to 9999 stay; of others, readers of the whole table fail."""
    numbers = pa.int32() if type_ == pa.date32() else pa.int64()
    ends = pa.array([first, last], type_).view(numbers).to_pylist()
    most = (1 << (numbers.bit_width - 1)) - 1
    array = pa.array([ends[0] - 1, ends[0], None, ends[1], ends[1] + 1, most, -most], numbers).view(type_)
    values, bad = one(array, type_, partition=partition)
    assert (values, [*bad]) == ([first, None, last], [0, 4, 5, 6])
    assert "whose year is not between 1 and 9999" in bad[0]
    within = pa.array([[{"a": [each]}] for each in array], pa.list_(pa.struct([("a", pa.list_(type_))])))
    assert [*one(within, within.type)[1]] == [0, 4, 5, 6]
