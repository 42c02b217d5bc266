"""Data files as actions of Delta's log."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from spark_eos.pipelines.tables.delta.actions import add_action, statistics_columns, statistics_text
from spark_eos.pipelines.tables.files import DataFile
from spark_eos.pipelines.tables.statistics import ColumnStatistics

FILE = DataFile(
    "p=a%20b/eos.parquet",
    10,
    3,
    1_700_000_000_000,
    {"p": "a b", "q": None},
    (
        ColumnStatistics(("s", "t.u"), 1, 'a"', "\U0010ffff"),
        ColumnStatistics(("s", "i"), 0, -(1 << 63), (1 << 53) + 1),
        ColumnStatistics(("d",), 0, Decimal("-0.0000001"), Decimal("150.00")),
        ColumnStatistics(("f",), 2, -0.0, 1e300),
        ColumnStatistics(("l",), 2),
    ),
)


def test_an_action_has_what_the_file_has() -> None:
    """The path as it is in the store: delta-rs encodes it."""
    action = add_action(FILE)
    assert (action.path, action.size, action.modification_time) == ("p=a%20b/eos.parquet", 10, 1_700_000_000_000)
    assert (action.partition_values, action.data_change) == ({"p": "a b", "q": None}, True)


def test_statistics_are_json_with_exact_numbers() -> None:
    """Neither the number of rows nor a digit of a number is left out. Characters are not escaped: delta-rs reads the
    two escapes of a character beyond 16 bits as another character."""
    assert '"\U0010ffff"' in statistics_text(FILE)
    read = json.loads(statistics_text(FILE), parse_float=str, parse_int=str)
    assert read == {
        "numRecords": "3",
        "minValues": {"s": {"t.u": 'a"', "i": "-9223372036854775808"}, "d": "-0.0000001", "f": "-0.0"},
        "maxValues": {"s": {"t.u": "\U0010ffff", "i": "9007199254740993"}, "d": "150.00", "f": "1e+300"},
        "nullCount": {"s": {"t.u": "1", "i": "0"}, "d": "0", "f": "2", "l": "2"},
    }


def test_bounds_of_all_columns_or_of_none() -> None:
    """Arrow's dataset of a Delta table finds no rows by a column whose bounds alone are missing."""
    unknown = ColumnStatistics(("f",), 0, unknown=True)
    text = statistics_text(DataFile("eos.parquet", 1, 5, 0, {}, (ColumnStatistics(("i",), 0, 1, 2), unknown)))
    assert json.loads(text) == {"numRecords": 5, "nullCount": {"i": 0, "f": 0}}
    assert json.loads(statistics_text(DataFile("eos.parquet", 1, 5, 0)))["numRecords"] == 5


@pytest.mark.parametrize(
    ("properties", "number"),
    [
        ({}, 32),
        ({"delta.dataSkippingNumIndexedCols": "5"}, 5),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, 1 << 30),
        ({"delta.dataSkippingNumIndexedCols": "5", "delta.dataSkippingStatsColumns": "c"}, 1 << 30),
    ],
)
def test_as_many_columns_have_statistics_as_the_table_wants(properties: dict[str, str], number: int) -> None:
    """All of them, where they are named or not limited."""
    assert statistics_columns(properties) == number
