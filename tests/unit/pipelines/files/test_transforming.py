"""Rows of files through a transform: which pieces it gets, what becomes of its rows, and how errors name places."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.errors import EosError, RowError
from spark_eos.pipelines.copy.plan import Function, OnMalformed
from spark_eos.pipelines.copy.sql import SqlTransform
from spark_eos.pipelines.copy.testing import check_transform
from spark_eos.pipelines.copy.transforming import CHUNK_OFFSETS, checked
from spark_eos.pipelines.copy.written import LastWritten
from spark_eos.pipelines.files import source
from spark_eos.pipelines.files.copying import LINES, FileRows, TransformCounts, given_in
from spark_eos.pipelines.files.notes import Notes
from spark_eos.pipelines.files.sample import check_by_sample
from spark_eos.pipelines.files.source import Form, read_file
from spark_eos.pipelines.files.transforming import pieces
from tests.unit.pipelines.files.conftest import NONE, planned, rows_of_task

TEXT, JSON, PARQUET = Form(blank=True), Form(), Form(parquet=True)


def through(
    path: Path, function: Function, form: Form = TEXT, on_malformed: OnMalformed = "fail", given: pa.Schema = LINES
) -> tuple[list[dict[str, Any]], TransformCounts]:
    """The rows that a task makes of the file, and how many it has read and rejected."""
    empty = pa.RecordBatch.from_pylist([], schema=given)
    transform = checked(function, "f", empty, "t", on_malformed, "_line")
    notes = Notes("notes", 0)
    plain = FileRows(form, [[planned(path)]], transform.columns, NONE, LastWritten(), notes)
    return rows_of_task(replace(plain, transform=transform, given=given), 0)


def tried(path: Path, function: Function, on_malformed: OnMalformed = "fail") -> bool:
    """Whether there was a sample."""
    transform = checked(function, "f", pa.RecordBatch.from_pylist([], schema=LINES), "t", on_malformed, "_line")
    return check_by_sample(transform, planned(path), TEXT, LINES, NONE)


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each line that is not empty, twice, with its number as the key."""
    kept = batch.filter(pc.not_equal(batch["value"], ""))
    twice = kept.take(pa.array([n // 2 for n in range(2 * kept.num_rows)], pa.int64()))
    return pa.RecordBatch.from_arrays([twice["_line"].cast(pa.string()), twice["value"]], names=["key", "value"])


DOUBLED = "SELECT _line::VARCHAR AS key, unnest([value, value]) AS value FROM input WHERE value <> ''"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=4), max_size=40))
@pytest.mark.parametrize("function", [doubled, SqlTransform(DOUBLED)], ids=["function", "SQL"])
def test_lines_through_a_transform_are_those_that_python_reads(function: Function, lines: list[str]):
    """In their order, with their numbers; what comes of a line comes as often as the transform says."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        path.write_text("".join(f"{line}\n" for line in lines), newline="")
        made, counts = through(path, function)
        with path.open(newline="\n", encoding="utf-8-sig") as file:
            numbered = [(number, line.removesuffix("\n")) for number, line in enumerate(file, 1)]
    expected = [{"key": b"%d" % number, "value": line.encode()} for number, line in numbered if line for _ in range(2)]
    assert (made, counts) == (expected, TransformCounts(len(numbered), 0))


@given(st.integers(0, 60), st.lists(st.integers(1, 9), min_size=60, max_size=60), st.integers(1, 40))
def test_pieces_do_not_depend_on_how_a_file_was_read(count: int, cuts: list[int], most_bytes: int):
    """Whatever the blocks were; all rows come once, in order, and no piece of several rows is too large."""
    rows = pa.record_batch(
        {"value": ["x" * (n % 13) for n in range(count)], "_line": pa.array(range(1, count + 1), pa.int64())}
    )

    def cut() -> Iterator[pa.RecordBatch]:
        at = 0
        for size in cuts:
            yield rows.slice(at, size)
            at += size

    whole = [piece.to_pylist() for piece in pieces([rows], TEXT, most_bytes)]
    assert [piece.to_pylist() for piece in pieces(cut(), TEXT, most_bytes)] == whole
    assert [row for piece in whole for row in piece] == rows.to_pylist()
    assert all(len(piece) == 1 or sum(len(row["value"]) for row in piece) <= most_bytes for piece in whole)


def test_a_transform_gets_no_more_than_so_many_rows(tmp_path: Path):
    """Of lines that are as short as can be."""
    path = tmp_path / "a"
    path.write_text("\n" * 30_000)
    sizes: list[int] = []

    def noted(batch: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(batch.num_rows)
        return batch.select(["value"])

    assert len(through(path, noted)[0]) == 30_000
    assert max(sizes) == CHUNK_OFFSETS and sum(sizes) == 30_000


def test_columns_of_parquet_have_the_types_that_spark_would_give(tmp_path: Path):
    """To SQL: unsigned numbers are wider, dictionaries are texts; and the place is beside them."""
    path = tmp_path / "a.parquet"
    columns = {
        "n": pa.array([255, None], pa.uint8()),
        "t": pa.array(["a", "b"]).dictionary_encode(),
        "when_": pa.array([0, 1], pa.timestamp("us", tz="UTC")),
        "l": [[1, 2], []],
    }
    pq.write_table(pa.table(columns), path)
    given = pa.schema(
        [
            ("n", pa.int16()),
            ("t", pa.string()),
            ("when_", pa.timestamp("us", tz="UTC")),
            ("l", pa.list_(pa.int64())),
            ("_file", pa.string()),
            ("_line", pa.int64()),
        ]
    )
    sql = "SELECT t AS key, to_json({'n': n, 'when': when_, 'l': l, 'line': _line}) AS value FROM input"
    seen: list[pa.Schema] = []

    def noted(batch: pa.RecordBatch) -> object:
        seen.append(batch.schema)
        return SqlTransform(sql)(batch)

    made, counts = through(path, noted, PARQUET, given=given)
    assert [field.type for field in seen[-1]] == [field.type for field in given]
    assert [(row["key"], json.loads(row["value"])) for row in made] == [
        (b"a", {"n": 255, "when": "1970-01-01 00:00:00+00", "l": [1, 2], "line": 1}),
        (b"b", {"n": None, "when": "1970-01-01 00:00:00.000001+00", "l": [], "line": 2}),
    ]
    assert counts == TransformCounts(2, 0)


def test_an_exception_of_a_function_names_the_lines(tmp_path: Path):
    """That it got, and their file."""
    path = tmp_path / "a"
    path.write_text("1\n\nx\n")

    def strict(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"value": [b"%d" % int(text) for text in batch["value"].to_pylist()]}, BYTES)

    with pytest.raises(ValueError, match="invalid literal") as raised:
        through(path, strict, JSON)
    assert raised.value.__notes__ == [f"The transform raised this for lines 1 to 3 of file://{path}."]


BYTES = pa.schema([("value", pa.binary())])
BY_ERROR = "SELECT value, _line, CASE WHEN value = 'x' THEN 'an x' END AS error FROM input"
BY_FAILURE = "SELECT (value::INT)::VARCHAR AS value FROM input"


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (BY_ERROR, r"EOS_RECORD_REJECTED\] A record is rejected at line 3 of file://.*/a: an x\."),
        (BY_FAILURE, r"EOS_TRANSFORM_SQL_ROW\] The SQL of the transform fails for line 3 of file://.*/a: Conversion"),
    ],
)
def test_lines_that_a_transform_rejects(sql: str, says: str, tmp_path: Path):
    """The first one is an error with its place; or each is left out, and counted."""
    path = tmp_path / "a"
    path.write_text("1\n2\nx\n4\nx\n")
    with pytest.raises(RowError, match=says):
        through(path, SqlTransform(sql))
    made, counts = through(path, SqlTransform(sql), on_malformed="drop")
    assert [row["value"] for row in made] == [b"1", b"2", b"4"]
    assert counts == TransformCounts(5, 2)


def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"value": [b"%d" % n for n in range(batch.num_rows)]}, BYTES)


def other_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return (
        batch.select(["value"]) if not batch.num_rows else batch.select(["value"]).append_column("key", batch["value"])
    )


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (numbered, r"4 records in pieces instead of together: near line 3 of file://.*/a"),
        (
            other_columns,
            r"returned columns value, key, but.*It got a sample of records: the first lines of file://.*/a",
        ),
    ],
)
def test_a_function_that_breaks_the_rules_is_refused_by_a_sample(function: Function, says: str, tmp_path: Path):
    """Before any task."""
    path = tmp_path / "a"
    path.write_text("1\nx\n3\n4\n")
    with pytest.raises(EosError, match=says):
        tried(path, function)


@pytest.mark.parametrize(
    ("content", "function", "is_there"),
    [
        (b"1\nx\n3\n4\n", doubled, True),
        (b"1\nx\n3\n4\n", SqlTransform(BY_FAILURE), True),
        (b"", doubled, False),
        (b"\xff\n", doubled, False),
        (b"x" * 5_000_000, doubled, True),
    ],
    ids=["a function", "SQL that fails for a line", "no line", "no text", "a line that is longer than a sample"],
)
def test_a_function_that_keeps_the_rules_passes_a_sample(
    content: bytes, function: Function, is_there: bool, tmp_path: Path
):
    """What is wrong with the lines themselves, or with the file, is left to the tasks."""
    path = tmp_path / "a"
    path.write_bytes(content)
    assert tried(path, function) is is_there


def test_a_transform_of_lines_in_a_test_of_its_own():
    """By `check_transform`, with the column that names lines."""
    lines = pa.record_batch(
        {"value": ["1", "x", "3"], "_file": ["f"] * 3, "_line": pa.array([1, 2, 3], pa.int64())}, LINES
    )
    check_transform(SqlTransform(BY_ERROR), lines, place="_line")
    with pytest.raises(RowError, match="EOS_TRANSFORM_RESULT"):
        check_transform(numbered, lines, place="_line")


def test_columns_of_lines_are_those_that_tasks_read(tmp_path: Path):
    """What SQL is checked against before Spark starts is what the data source gives."""
    path = tmp_path / "a"
    path.write_text("1\n")
    (read,) = read_file(planned(path), TEXT, NONE)
    assert read.schema.equals(LINES, check_metadata=False)
    names = re.findall(r"(\w+) [A-Z]+", source.TEXT_SCHEMA)
    assert names == LINES.names == given_in(planned(path), TEXT, NONE).names
