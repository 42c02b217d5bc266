"""What tasks read of files whose lines or columns go on as they are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_eos.pipelines.copy.written import LastWritten
from spark_eos.pipelines.files.copying import FileRows, columns_in
from spark_eos.pipelines.files.folder import File, Folder, with_digest
from spark_eos.pipelines.files.notes import Notes
from spark_eos.pipelines.files.source import Form
from tests.support.judges.conditions import raises
from tests.unit.pipelines.files.conftest import NONE, rows_of_task

TEXT, JSON, PARQUET = Form(blank=True), Form(), Form(parquet=True)


def files_in(folder: Path) -> list[File]:
    found = [with_digest(file, NONE) for file in Folder(str(folder)).files()]
    return sorted(found, key=lambda file: file.uri)


def rows_in(folder: Path, form: Form, *numbers: int) -> list[dict[str, object]]:
    """The rows of splits of one file each, as tasks with these numbers have them."""
    files = files_in(folder)
    columns = columns_in(files[0], form, NONE, "t")
    rows = FileRows(form, [[file] for file in files], columns, NONE, LastWritten(), Notes("notes", 0))
    return rows_of_task(rows, *numbers)[0]


def test_each_line_is_a_value(tmp_path: Path):
    """Of the files of the task's own split; blank lines are rows of text, not of JSON."""
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf1\r\n\r\n \t\n{2")
    (tmp_path / "b").write_bytes(b"3\x00\n")
    (tmp_path / "c").write_bytes(b"")
    assert rows_in(tmp_path, TEXT, 0) == [{"value": value} for value in (b"1", b"", b" \t", b"{2")]
    assert rows_in(tmp_path, JSON, 0) == [{"value": value} for value in (b"1", b"{2")]
    assert rows_in(tmp_path, JSON, 1) == [{"value": b"3\0"}]
    assert rows_in(tmp_path, JSON, 2) == []


@pytest.mark.usefixtures("without_jvm")
def test_columns_of_parquet_that_are_the_topics(tmp_path: Path):
    """Texts of each kind are bytes, and nulls stay; the topic is that of the sink."""
    table = pa.table(
        {
            "value": pa.array(["a", None], pa.large_string()),
            "key": pa.array(["k", "k"]).dictionary_encode(),
            "topic": ["other", "other"],
            "partition": pa.array([1, None], pa.int32()),
            "timestamp": pa.array([1, 2], pa.timestamp("ms", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    rows = rows_in(tmp_path, PARQUET, 0)
    assert [(row["key"], row["value"], row["partition"]) for row in rows] == [(b"k", b"a", 1), (b"k", None, None)]
    columns = columns_in(files_in(tmp_path)[0], PARQUET, NONE, "t")
    assert (columns.key, columns.topic, columns.partition, columns.timestamp) == (True, False, True, True)


@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize(
    ("columns", "entry"),
    [
        ({"value": ["c"], "n": [1]}, "EOS_SCHEMA_INVALID.unknown"),
        ({"value": [1]}, "EOS_SCHEMA_INVALID.type"),
        ({"key": ["c"]}, "EOS_SCHEMA_INVALID.value"),
        ({"value": ["c"], "timestamp": pa.array([1], pa.timestamp("us"))}, "EOS_SCHEMA_INVALID.type"),
        ({"value": ["c"], "timestamp": pa.array([1], pa.timestamp("ns", "UTC"))}, "EOS_FILE_MALFORMED.content"),
        ({"value": ["c"], "_line": [1]}, "EOS_FILE_MALFORMED.columns"),
    ],
)
def test_what_is_no_column_of_a_topic(columns: dict[str, object], entry: str, tmp_path: Path):
    """Nothing of the file is left out, or made into something else, in silence."""
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with raises(entry):
        rows_in(tmp_path, PARQUET, 0)
