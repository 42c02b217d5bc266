"""Records as rows of a table by a transform: with the table's columns, or named as those that the table cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError, RowError, SchemaError
from spark_eos.kafka.net.client import broker_client
from spark_eos.options.parse import stream_options
from spark_eos.pipelines.copy.plan import Function, RowTransform
from spark_eos.pipelines.copy.sql import SqlTransform
from spark_eos.pipelines.copy.table.rows import TableTransform, rows_of
from spark_eos.pipelines.copy.table.start import fitting, transform_of
from spark_eos.pipelines.copy.testing import check_transform
from spark_eos.pipelines.copy.transforming import Chunk
from spark_eos.pipelines.copy.values import SchemaTransform
from spark_eos.pipelines.registry.decoding import Decoding
from spark_eos.pipelines.registry.schemas import Registered, Schema
from spark_eos.pipelines.registry.settings import registry_settings
from spark_eos.pipelines.tables.delta.table import location_of
from spark_eos.pipelines.tables.delta.target import DeltaReference
from spark_eos.source.schema import arrow_schema
from tests.support.judges.conditions import raises
from tests.support.tables.table_kinds import Iceberg
from tests.unit.pipelines.copy.test_transforming import example

COLUMNS = arrow_schema(include_headers=False)
READS = stream_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
#: Numbers of the type that a table's column has, and of one that is wider.
SMALL, WIDE = pa.int8(), pa.int64()


def records(values: Iterable[bytes | None], first: int = 40) -> pa.RecordBatch:
    """Of t-3, from this offset on."""
    rows = [{"topic": "t", "partition": 3, "offset": first + n, "value": value} for n, value in enumerate(values)]
    return pa.RecordBatch.from_pylist(rows, schema=COLUMNS)


def of_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A column ``n``, of the value."""
    return pa.RecordBatch.from_arrays([batch.column("value").cast(pa.string()).cast(WIDE)], names=["n"])


def named(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same, with the offset and with an error for zero."""
    numbers = of_numbers(batch).column("n")
    errors = pa.array(["it is zero" if n == 0 else None for n in numbers.to_pylist()], pa.string())
    return pa.RecordBatch.from_arrays([numbers, batch.column("offset"), errors], names=["n", "offset", "error"])


def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Two rows of each record: its number, and the number plus 100."""
    numbers = [n + more for n in of_numbers(batch).column("n").to_pylist() for more in (0, 100)]
    return pa.RecordBatch.from_arrays([pa.array(numbers, WIDE)], names=["n"])


def to_table(
    function: Function, schema: pa.Schema, names: Iterable[str] = ("n",), on_malformed: str = "drop"
) -> TableTransform:
    return TableTransform(function, "f", frozenset(names), schema, on_malformed=on_malformed)  # type: ignore[arg-type]


@pytest.mark.parametrize("function", [of_numbers, named, twice])
@given(numbers=st.lists(st.integers(-300, 300), max_size=40))
def test_rows_that_the_table_cannot_hold_are_those_of_their_records(
    function: Callable[[pa.RecordBatch], pa.RecordBatch], numbers: list[int]
) -> None:
    """Wherever they are, and whether the transform names the records of its rows; the others stay in order."""
    names = ("n", "offset", "error") if function is named else ("n",)
    transform = to_table(function, pa.schema({"n": SMALL}), names)
    batch = records(b"%d" % n for n in numbers)
    found = list(rows_of(transform, [batch] if numbers else []))
    made = [(n, n + 100) if function is twice else (n,) for n in numbers]
    zero = function is named
    fit = [n for each in made for n in each if -128 <= n <= 127 and not (zero and n == 0)]
    bad = {place for place, each in enumerate(made) if any(not -128 <= n <= 127 or (zero and n == 0) for n in each)}
    assert [n for done in found for n in done.rows.column("n").to_pylist()] == fit
    assert {place for done in found for place in done.rejected} == bad
    assert all(done.rows.schema == transform.schema for done in found)


def test_the_query_stops_at_the_first_record_whose_row_does_not_fit() -> None:
    """By topic, partition and offset; and by no more calls than halving needs."""
    calls = []

    def counting(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(batch.num_rows)
        return of_numbers(batch)

    transform = to_table(counting, pa.schema({"n": SMALL}), on_malformed="fail")
    with pytest.raises(
        RowError,
        match=r"offset 43 of t-3: the table cannot hold its row: column n: a value of int64 that int8",
    ):
        list(rows_of(transform, [records([b"1", b"2", b"3", b"400", *[b"500"] * 100])]))
    assert len(calls) < 20


def test_a_record_whose_row_has_no_partition_is_rejected(tmp_path, topic) -> None:
    """As where it has no row; whether the table is there yet or not."""
    place, values = Iceberg(tmp_path).place(partitionBy="truncate(10, c)"), (b"1", b"10000", b"3")
    function = SqlTransform("SELECT (decode(value)::BIGINT * -214748 - 3648)::INT AS c FROM input")
    for _ in range(2):
        made = fitting(RowTransform(function, "f", on_malformed="drop"), broker_client(READS.kafka), READS, place)
        (done,) = rows_of(made, [records(values)])
        assert done.rows.num_rows == 2
        assert list(done.rejected) == [1] and "does not fit int32" in done.rejected[1]
        place.target(made.schema, create=True)


def test_an_offset_beside_an_error_is_a_column_where_the_table_has_one() -> None:
    """Of a table without it, it only names records."""
    batch = records([b"1", b"0", b"3"])
    names = ("n", "offset", "error")
    with_offset = to_table(named, pa.schema({"n": WIDE, "offset": pa.int64()}), names)
    (done,) = rows_of(with_offset, [batch])
    assert done.rows.to_pydict() == {"n": [1, 3], "offset": [40, 42]} and done.rejected == {1: "it is zero"}
    (done,) = rows_of(to_table(named, pa.schema({"n": WIDE}), names), [batch])
    assert done.rows.to_pydict() == {"n": [1, 3]}


def test_other_columns_than_for_no_records_stop_the_query() -> None:
    """A column that is missing would be null in silence; a type that does not fit is the query's fault, too."""
    with pytest.raises(RowError, match="different ones for an empty batch"):
        list(rows_of(to_table(of_numbers, pa.schema({"n": WIDE, "m": WIDE}), ("n", "m")), [records([b"1"])]))
    with raises("EOS_TABLE_COLUMNS.type"):
        list(rows_of(to_table(of_numbers, pa.schema({"n": pa.string()})), [records([b"1"])]))


def test_a_transform_to_a_table_is_checked_by_its_users_as_well() -> None:
    """With any columns, also with NaN, which is equal to itself; one that looks at other records is found."""
    batch = records([b"1", b"0", b"2", b"4"])
    check_transform(SqlTransform("SELECT 'nan'::DOUBLE AS n, [{'f': 'nan'::FLOAT}] AS l FROM input"), batch, table=True)
    check_transform(named, batch, table=True)
    with raises("EOS_TRANSFORM_RESULT.sample"):
        check_transform(lambda given: pa.table({"n": range(given.num_rows)}), batch, table=True)


# The start

SQL = (
    "SELECT decode(value)::INT AS n, decode(value) AS s, [1::UTINYINT] AS l, {'a': 1.5::DECIMAL(4, 1)} AS r FROM input"
)


def fitted(
    folder: Path, function: Function | str, partition_by: tuple[str, ...] = (), *, evolves: bool = False
) -> TableTransform:
    made = SqlTransform(function) if isinstance(function, str) else function
    location = location_of(str(folder / "table"), HadoopSettings())
    place = DeltaReference(location, partition_by)
    return fitting(RowTransform(made, "f"), broker_client(READS.kafka), READS, place, evolves=evolves)


def refused(folder: Path, function: Function | str, partition_by: tuple[str, ...] = (), says: str = "") -> str:
    with pytest.raises(EosError) as caught:
        fitted(folder, function, partition_by)
    assert says in caught.value.message
    return caught.value.entry


def test_a_new_table_has_the_columns_of_the_plan(tmp_path, topic) -> None:
    """Of the types that tables have; nothing is created by that."""
    assert fitted(tmp_path, SQL, ("s",)).schema == pa.schema(
        {
            "n": pa.int32(),
            "s": pa.string(),
            "l": pa.list_(pa.field("element", pa.int16())),
            "r": pa.struct({"a": pa.decimal128(4, 1)}),
        }
    )
    assert not (tmp_path / "table").exists()


def test_a_column_without_a_type_gets_that_of_the_sample(tmp_path, topic) -> None:
    """As of lists of Python's, which have none where they are empty; also one that a table is to be given."""

    def of_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"n": [int(value) for value in batch.column("value").to_pylist()]})

    assert refused(tmp_path, of_lists) == "EOS_TABLE_COLUMNS.unsupported"
    topic.append(Chunk(records([b"1", b"2"]), 40))
    assert fitted(tmp_path, of_lists).schema == pa.schema({"n": pa.int64()})
    DeltaTable.create(str(tmp_path / "table"), pa.schema({"m": pa.string()}))
    assert fitted(tmp_path, of_lists, evolves=True).schema == pa.schema({"m": pa.string(), "n": pa.int64()})


def test_the_sample_is_tried_against_the_table(tmp_path, topic) -> None:
    """A type that depends on the records is found before anything is created; a record that does not fit is the
    tasks' to judge."""

    def changing(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([1.5] * batch.num_rows, WIDE if not batch else None)], names=["n"])

    topic.append(Chunk(records([b"1", b"x"]), 40))
    with pytest.raises(SchemaError, match="t-3 from offset 40 on"):
        fitted(tmp_path, changing)
    assert fitted(tmp_path, "SELECT decode(value)::INT AS n FROM input").names == {"n"}


def test_the_example_of_the_page_becomes_a_table(tmp_path, topic) -> None:
    """With a day in UTC for its folders; a value that is no number is rejected."""
    transform = fitted(tmp_path, example("delayed", "delta.md"), ("day",))
    day = pa.timestamp("us", "UTC")
    batch = records([b'{"delay": 7}', b'{"delay": "x"}', b"{}"])
    late = pa.array([86_399_999_999] * 3, pa.int64()).cast(day)
    batch = batch.set_column(batch.schema.get_field_index("timestamp"), "timestamp", late)
    (done,) = rows_of(replace(transform, on_malformed="drop"), [batch])
    assert done.rows.select(["delay", "day", "offset"]).to_pylist() == [
        {"delay": 7, "day": date(1970, 1, 1), "offset": 40},
        {"delay": None, "day": date(1970, 1, 1), "offset": 42},
    ]
    assert set(done.rejected) == {1}


def test_decoded_values_are_columns_of_the_table(tmp_path, topic) -> None:
    """Beside all others of the source, where there is no function; what cannot be decoded is rejected."""
    schema = Schema("AVRO", '{"type":"record","name":"R","fields":[{"name":"id","type":"int"}]}')
    decoding = Decoding(registry_settings("http://127.0.0.1:1"), Registered("t-value", 1, 7, schema))
    transform = fitted(tmp_path, SchemaTransform(None, "records", {"value": decoding}, to_table=True))
    assert transform.schema.names == COLUMNS.names
    assert transform.schema.field("value").type == pa.struct({"id": pa.int32()})
    (done,) = rows_of(replace(transform, on_malformed="drop"), [records([None, b"no Avro", None])])
    assert done.rows.select(["value", "offset"]).to_pylist() == [
        {"value": None, "offset": 40},
        {"value": None, "offset": 42},
    ]
    assert set(done.rejected) == {1} and done.rejected[1].startswith("the value: ")
    with pytest.raises(RowError, match="offset 41 of t-3: the value: "):
        list(rows_of(transform, [records([None, b"no Avro"])]))


@pytest.mark.parametrize(
    ("function", "partition_by", "entry", "says"),
    [
        # Rows of Python's without a schema have no columns where there is none.
        (lambda batch: pa.RecordBatch.from_pylist([{"n": 1}] * batch.num_rows), (), "EOS_TABLE_COLUMNS.empty", ""),
        ("SELECT 1 AS n FROM input", ("day",), "EOS_TABLE_COLUMNS.partition", "day: its columns are n"),
        ("SELECT 1 AS n, '' AS error FROM input", (), "EOS_SCHEMA_INVALID.transform_reject", "'offset'"),
    ],
)
def test_what_cannot_become_a_table_is_refused(tmp_path, topic, function, partition_by, entry, says) -> None:
    """Before there is one."""
    assert refused(tmp_path, function, partition_by, says) == entry
    assert not (tmp_path / "table").exists()


NOT_NULL = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("s", pa.string())])


@pytest.mark.parametrize(
    ("sql", "entry"),
    [
        ("SELECT 1::BIGINT AS n FROM input", None),
        ("SELECT 1::TINYINT AS n, value AS s FROM input", None),
        ('SELECT 1 AS n, "offset", NULL AS error FROM input', None),
        ("SELECT 1.5::DOUBLE AS n FROM input", "EOS_TABLE_COLUMNS.type"),
        ('SELECT 1 AS n, "offset" FROM input', "EOS_TABLE_COLUMNS.unknown"),
    ],
)
def test_a_table_that_is_there_keeps_its_columns(tmp_path, topic, sql, entry) -> None:
    """Rows get its types where each value can be checked; columns that may be null may be missing."""
    DeltaTable.create(str(tmp_path / "table"), NOT_NULL, partition_by=["n"])
    if entry is not None:
        assert refused(tmp_path, sql) == entry
        return
    found = fitted(tmp_path, sql, ("s",))
    assert (found.schema, found.partition_by) == (NOT_NULL, ("n",))


def test_a_tables_own_column_error_and_one_that_rejects_are_two(tmp_path, topic) -> None:
    """The rows that it means would be rejected."""
    DeltaTable.create(str(tmp_path / "table"), pa.schema({"n": pa.int64(), "error": pa.string()}))
    assert refused(tmp_path, "SELECT 1 AS n, 'x' AS error, \"offset\" FROM input") == "EOS_TABLE_COLUMNS.reserved"
    assert fitted(tmp_path, "SELECT 1 AS n FROM input").names == {"n"}


@pytest.mark.parametrize(
    ("function", "on_malformed", "entry"),
    [
        (named, "deadLetters", "EOS_OPTION_CONFLICT.table_letters"),
        (named, "ignore", "EOS_OPTION_INVALID.value"),
        (None, "drop", "EOS_OPTION_CONFLICT.remove"),
    ],
)
def test_what_cannot_become_of_rejected_records_is_refused(function, on_malformed, entry) -> None:
    """By name."""
    with raises(entry) as caught:
        transform_of(function, "f", on_malformed)
    assert "on_malformed" in caught.value.message
