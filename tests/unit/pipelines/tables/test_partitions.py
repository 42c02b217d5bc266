"""Partition values as texts and directories, and the rows of each partition."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.pipelines.tables.partitions import NULL, NoPartition, by_partition, directory_of, text_of, value_of

UTC = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (True, pa.bool_(), "true"),
        (False, pa.bool_(), "false"),
        (-(1 << 63), pa.int64(), "-9223372036854775808"),
        (Decimal("150.00"), pa.decimal128(5, 2), "150.00"),
        (Decimal("0E-7"), pa.decimal128(9, 7), "0.0000000"),
        ("a b/c=ü", pa.string(), "a b/c=ü"),
        ("", pa.string(), None),
        (None, pa.int32(), None),
        (date(2024, 5, 1), pa.date32(), "2024-05-01"),
        (date(1, 1, 1), pa.date32(), "0001-01-01"),
        (1_714_566_600_000_001, UTC, "2024-05-01T12:30:00.000001Z"),
        (-1, UTC, "1969-12-31T23:59:59.999999Z"),
        (0, pa.timestamp("us"), "1970-01-01 00:00:00.000000"),
    ],
)
def test_a_value_has_one_text_and_comes_back_from_it(value: object, type_: pa.DataType, text: str | None) -> None:
    """Timestamps say that they are in UTC; decimals have all digits of their scale; empty strings are null."""
    assert text_of(value, type_) == text
    if text is not None:
        assert value_of(text, type_) == value


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("abc", pa.int32()),
        ("128", pa.int8()),
        ("150", pa.decimal128(5, 2)),
        ("1234.00", pa.decimal128(5, 2)),
        ("2024-13-01", pa.date32()),
        ("yes", pa.bool_()),
        ("now", UTC),
        ("2024-05-01T12:30:00+01:00", UTC),
        ("2024-05-01 12:30:00+01:00", pa.timestamp("us")),
        ("2024-05-01 12:30:00Z", pa.timestamp("us")),
    ],
)
def test_a_text_that_is_none_of_the_type_is_refused(text: str, type_: pa.DataType) -> None:
    """With such a partition value in its log, readers can no longer open the table."""
    with pytest.raises(NoPartition):
        value_of(text, type_)


@pytest.mark.parametrize(("value", "type_", "why"), [(NULL, pa.string(), "for null"), (1 << 62, UTC, "its year")])
def test_a_value_that_readers_would_take_for_another_is_refused(value: object, type_: pa.DataType, why: str) -> None:
    """The directory of null has that name; and a year has four digits, also in Python."""
    with pytest.raises(NoPartition, match=why):
        text_of(value, type_)


@given(st.text(min_size=1, max_size=20))
def test_directories_have_plain_names_that_decode_to_the_value(text: str) -> None:
    """Letters, digits and a few signs; all others are escaped by their bytes."""
    directory = directory_of(["p"], (text,))
    assert set(directory) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-=%/")
    assert directory.count("/") == directory.count("=") == 1
    assert unquote(directory) == f"p={text}/"


def test_directories_are_nested_and_null_has_one() -> None:
    """One for each partition column."""
    assert directory_of(["a b", "é/c"], ("x y", None)) == f"a b=x%20y/é%2Fc={NULL}/"
    assert directory_of([], ()) == ""


def test_a_name_that_file_systems_do_not_take_is_refused() -> None:
    """255 bytes, with what is escaped."""
    directory_of(["p"], ("x" * 253,))
    with pytest.raises(NoPartition, match="255 bytes"):
        directory_of(["p"], ("x" * 254,))
    with pytest.raises(NoPartition, match="255 bytes"):
        directory_of(["p"], ("ü" * 64,))


def test_rows_of_one_partition_are_not_copied() -> None:
    """The usual case of days or hours costs nothing."""
    batch = pa.RecordBatch.from_pydict({"p": [7, 7], "v": [1, 2]})
    ((partition, rows),) = by_partition(batch, ["p"])
    assert partition == ("7",)
    assert rows.column("v").buffers()[1].address == batch.column("v").buffers()[1].address


def test_rows_of_several_partitions_hold_no_others_in_memory() -> None:
    """A row that waits for others of its partition must not keep its whole batch."""
    batch = pa.RecordBatch.from_pydict({"p": [0, *[1] * 9999], "v": list(range(10_000))})
    held = {partition: rows.get_total_buffer_size() for partition, rows in by_partition(batch, ["p"])}
    assert held[("0",)] < 100


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, "", "a", "b"]), st.booleans()), max_size=40))
def test_every_row_is_in_its_partition_once(rows: list[tuple[int, str | None, bool]]) -> None:
    """Whatever combinations of values there are."""
    schema = pa.schema({"i": pa.int64(), "s": pa.string(), "b": pa.bool_(), "place": pa.int64()})
    columns = [*(list(column) for column in zip(*rows, strict=True)), list(range(len(rows)))] if rows else [[]] * 4
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    expected: dict[tuple[str | None, ...], list[int]] = {}
    for place, (number, text, flag) in enumerate(rows):
        expected.setdefault((str(number), text or None, str(flag).lower()), []).append(place)
    found = {partition: part.column("place").to_pylist() for partition, part in by_partition(batch, ["i", "s", "b"])}
    assert found == expected
