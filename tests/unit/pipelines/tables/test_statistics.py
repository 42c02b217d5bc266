"""Statistics of columns: bounds that hold for every value, and none where that is in doubt."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.pipelines.tables.statistics import LONGEST, Bound, Collector, ColumnStatistics, cut_high, cut_low

UTC = pa.timestamp("us", "UTC")
LAST = "\U0010ffff"
UNKNOWN = "unknown"


def statistics(*groups: pa.Table, most: int = 32) -> tuple[ColumnStatistics, ...]:
    """Of a file with these row groups."""
    collector = Collector(groups[0].schema, most)
    for group in groups:
        collector.add(group)
    return collector.statistics()


def of_column(type_: pa.DataType, *groups: list[object]) -> tuple[Bound | None, Bound | None, int]:
    """Bounds and nulls of a column with these values in its row groups; ``UNKNOWN`` twice for bounds."""
    (found,) = statistics(*(pa.table({"c": pa.array(group, type_)}) for group in groups))
    assert found.column == ("c",)
    if found.unknown:
        assert found.low is found.high is None
        return UNKNOWN, UNKNOWN, found.nulls
    return found.low, found.high, found.nulls


@pytest.mark.parametrize(
    ("type_", "values", "expected"),
    [
        (pa.int64(), [3, None, (1 << 53) + 1], (3, (1 << 53) + 1, 1)),
        (pa.int8(), [None, None], (None, None, 2)),
        (pa.int32(), [], (None, None, 0)),
        (pa.date32(), [date(2024, 5, 1), date(1, 1, 1)], ("0001-01-01", "2024-05-01", 0)),
        (pa.date32(), [0, 1 << 30], (UNKNOWN, UNKNOWN, 0)),  # a year of more than four digits
        (pa.float64(), [1.5, -2.5], (-2.5, 1.5, 0)),
        (pa.float32(), [0.1], (0.10000000149011612, 0.10000000149011612, 0)),
        (pa.float64(), [1.0, math.nan, None], (UNKNOWN, UNKNOWN, 1)),
        (pa.float64(), [1.0, math.inf], (UNKNOWN, UNKNOWN, 0)),
        (pa.float64(), [-math.inf, 1.0], (UNKNOWN, UNKNOWN, 0)),
        (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-2.00")], (Decimal("-2.00"), Decimal("1.50"), 0)),
        (
            pa.decimal128(18, 4),
            [Decimal("-12345678901234.5470"), Decimal("12345678901234.5470")],  # nearer to .5
            (Decimal("-12345678901234.6"), Decimal("12345678901234.6"), 0),
        ),
        (pa.decimal128(16, 0), [Decimal(-123456789012345), Decimal("9" * 16)], (UNKNOWN, UNKNOWN, 0)),
        (pa.string(), ["b", "", None], ("", "b", 1)),
        (pa.timestamp("us"), [1, 1001], ("1970-01-01T00:00:00.000", "1970-01-01T00:00:00.002", 0)),
        (UTC, [-1, -1], ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z", 0)),
        (UTC, [1000], ("1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.001Z", 0)),
        (UTC, [0, 1 << 62], (UNKNOWN, UNKNOWN, 0)),
        (pa.bool_(), [True, None], (True, True, 1)),
        (pa.binary(), [b"a", None], (None, None, 1)),
        (pa.list_(pa.int64()), [[1, None], None, []], (None, None, 1)),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None], (None, None, 1)),
    ],
)
def test_bounds_by_type(type_: pa.DataType, values: list[object], expected: object) -> None:
    """Exact, or wider by what is written of them; nulls are counted for every type."""
    assert of_column(type_, values) == expected


def test_zeros_are_bounds_for_both_zeros() -> None:
    """Some engines order -0.0 before 0.0."""
    for value in (0.0, -0.0):
        low, high, _ = of_column(pa.float64(), [value])
        assert (math.copysign(1, low), math.copysign(1, high)) == (-1, 1)  # type: ignore[arg-type]


def test_row_groups_add_up() -> None:
    """The bounds of a file are those of all its row groups; one of nulls has none."""
    assert of_column(pa.int64(), [5], [None, None], [2, 9], []) == (2, 9, 2)
    assert of_column(pa.string(), ["b" * 40], ["a" * 40]) == ("a" * LONGEST, "b" * LONGEST + LAST, 0)


def test_one_doubt_in_any_row_group_leaves_the_bounds_out() -> None:
    """Before and after row groups without any."""
    assert of_column(pa.float64(), [1.0], [math.nan], [2.0]) == (UNKNOWN, UNKNOWN, 0)
    assert of_column(pa.string(), [LAST * (LONGEST + 1)], ["a"]) == (UNKNOWN, UNKNOWN, 0)


@given(st.text(), st.text(max_size=3))
def test_strings_are_cut_to_bounds(text: str, end: str) -> None:
    """In the order of code points, which is that of their UTF-8; also with the last character that Unicode has."""
    for value in (text, text.ljust(LONGEST, "a") + end, text + LAST * LONGEST + end):
        high = cut_high(value)
        assert cut_low(value).encode() <= value.encode()
        assert high is None or value.encode() <= high.encode()
        assert len(cut_low(value)) <= LONGEST
        assert high is None or len(high) <= LONGEST + 1


def test_fields_of_structs_have_their_own() -> None:
    """A field is null where a struct above it is, whatever its buffer holds there."""
    inner = pa.StructArray.from_arrays(
        [pa.array([1, 2, 99])], fields=[pa.field("b", pa.int64())], mask=pa.array([False, False, True])
    )
    outer = pa.StructArray.from_arrays(
        [inner, pa.array(["x", None, "y"])],
        fields=[pa.field("a.b", inner.type), pa.field("t", pa.string())],
        mask=pa.array([False, True, False]),
    )
    found = statistics(pa.table({"first": pa.array([1, 1, 1]), "s": outer}))
    assert found == (
        ColumnStatistics(("first",), 0, 1, 1),
        ColumnStatistics(("s", "a.b", "b"), 2, 1, 1),
        ColumnStatistics(("s", "t"), 1, "x", "y"),
    )


def test_only_the_first_leaves_have_statistics() -> None:
    """Their number is the table's setting. Fields of structs count; columns without bounds do not, as readers that
    count them have fewer columns then, and one that reads of bounds that are not there would find no rows."""
    type_ = pa.struct({"a": pa.int64(), "x": pa.binary(), "b": pa.int64()})
    table = pa.table({"s": pa.array([{"a": 1, "b": 2}], type_), "y": [b""], "c": [3], "z": [b""]})
    names = [("s", "a"), ("s", "x"), ("s", "b"), ("y",), ("c",), ("z",)]
    assert [one.column for one in statistics(table, most=2)] == names[:4]
    assert [one.column for one in statistics(table, most=3)] == names
    assert statistics(table, most=0) == ()


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1)))))
def test_moments_lie_between_their_bounds(groups: list[list[int | None]]) -> None:
    """Whatever microseconds they have, and however they are distributed over row groups."""
    low, high, nulls = of_column(UTC, *groups, [0])
    values = [value for group in groups for value in group if value is not None] + [0]
    assert nulls == sum(value is None for group in groups for value in group)
    if low != UNKNOWN:
        assert _us(low) <= min(values) < _us(low) + 1000
        assert _us(high) - 1000 < max(values) <= _us(high)


def _us(text: Bound | None) -> int:
    """Microseconds since 1970 of a text that Arrow reads."""
    moment: int = pa.array([text]).cast(UTC).cast(pa.int64())[0].as_py()
    return moment
