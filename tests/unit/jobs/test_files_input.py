"""The config file of an ingest: what is wrong in it is said before Spark starts."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from jobs.files.selection import FileSelection, dealt
from jobs.files.writing import way_of
from jobs.ingest_files import IngestFiles, plan
from jobs.runner.config import load
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError, FileError
from spark_eos.pipelines.files.folder import File, Folder, with_digest
from spark_eos.pipelines.files.notes import Taken

NOTHING = argparse.Namespace()
ROOT = Path(__file__).parents[3]
RIGHT = """
kafka: {bootstrap.servers: "localhost:9092"}
name: invoices
files: {path: /data, format: csv, schema: n INT, header: true}
transform: {sql: SELECT string(n) AS value FROM input}
sink: {topic: t}
"""


def read(text: str, folder: Path) -> IngestFiles:
    file = folder / "job.yaml"
    file.write_text(text)
    return load(file, IngestFiles, {})


def test_the_example_is_right_and_says_the_defaults(tmp_path: Path):
    """What it does not say differs from what it says in nothing but the options of its format."""
    config = load(ROOT / "conf" / "ingest_files.yaml", IngestFiles, {"FILES": "/data"})
    assert plan(config, NOTHING).line == "/data/*.csv → invoices; ingest invoices; every 10 seconds"
    default = read(RIGHT, tmp_path)
    assert (config.files.unchanged_s, config.trigger, config.restart, config.files.max_files_per_trigger) == (
        *(default.files.unchanged_s, default.trigger, default.restart, default.files.max_files_per_trigger),
    )


def test_the_example_by_duckdb_is_right():
    """Its SQL is one that DuckDB can run over each row."""
    config = load(ROOT / "conf" / "ingest_sql.yaml", IngestFiles, {"FILES": "/data"})
    assert plan(config, NOTHING).line == "/data/*.jsonl → events; ingest events; every 10 seconds"
    assert str(config.way).endswith("past the JVM: DuckDB runs 'transform.sql' with lines of json as they are")


@pytest.mark.parametrize("pattern", ["*", "?_.csv", "[!_]*.csv", "[._a]*", "[{]*[/]", "[日]*", "[", "a[]b]*"])
def test_a_pattern_that_matches_a_name(pattern: str, tmp_path: Path):
    """Whatever its special letters."""
    assert read(RIGHT.replace("path: /data", f"path: /data, pattern: '{pattern}'"), tmp_path).files.pattern == pattern


LINES_OF_JSON = RIGHT.replace("format: csv, schema: n INT, header: true", "format: json")
BY_SQL = "transform: {sql: SELECT string(n) AS value FROM input}"
AS_THEY_ARE = LINES_OF_JSON.replace(BY_SQL, "")
BY_DUCKDB = LINES_OF_JSON.replace("{sql:", "{engine: duckdb, sql:")
BY_ARROW = LINES_OF_JSON.replace(BY_SQL, "transform: {arrow: os.path:join}")


@pytest.mark.parametrize(
    ("text", "way"),
    [
        (RIGHT, "through Spark: it runs 'transform.sql' of parsed csv"),
        (AS_THEY_ARE, "past the JVM: without 'transform', lines of json are values as they are"),
        (
            AS_THEY_ARE.replace("json", "text"),
            "past the JVM: without 'transform', lines of text are values as they are",
        ),
        (
            AS_THEY_ARE.replace("json", "parquet"),
            "past the JVM: without 'transform', columns of Parquet are the topic's",
        ),
        (LINES_OF_JSON.replace("json", "text"), "through Spark: it runs 'transform.sql'"),
        (
            LINES_OF_JSON.replace("json", "parquet").replace(BY_SQL, "transform: {function: os.path:join}"),
            "through Spark: it runs 'transform.function'",
        ),
        (BY_DUCKDB, "past the JVM: DuckDB runs 'transform.sql' with lines of json as they are"),
        (
            BY_ARROW.replace("json", "parquet, onMalformed: drop"),
            "past the JVM: tasks call 'transform.arrow' with rows of Parquet as they are",
        ),
    ],
)
def test_the_way_past_the_jvm_is_for_what_is_not_parsed(text: str, way: str, tmp_path: Path):
    """Without a transform, or with one of Arrow batches, Spark has nothing to do; the way and its reason are logged."""
    config = read(text, tmp_path)
    assert str(way_of(config.files, config.transform)) == f"rows are read {way}"


def test_sql_that_duckdb_refuses_is_said_before_spark_starts(tmp_path: Path):
    """For lines, whose columns are known; those of Parquet are known by its files."""
    wrong = BY_DUCKDB.replace("string(n)", "sum(n)")
    with pytest.raises(EosError, match=r"EOS_TRANSFORM_SQL.*with the columns value, _file, _line"):
        plan(read(wrong, tmp_path), NOTHING)
    plan(read(wrong.replace("json", "parquet"), tmp_path), NOTHING)


@pytest.mark.parametrize(
    ("sizes", "tasks", "expected"),
    [
        ([5], 4, [[5]]),
        ([1, 1, 1, 1], 2, [[1, 1], [1, 1]]),
        ([9, 1, 1, 1], 2, [[9], [1, 1, 1]]),
        ([1, 1, 1, 9], 3, [[1, 1, 1, 9]]),
        ([0, 0], 2, [[0, 0]]),
    ],
)
def test_files_are_dealt_in_their_order(sizes: list[int], tasks: int, expected: list[list[int]]):
    """To no more tasks than asked for, each with about its share of the bytes."""
    splits = dealt([File(f"f{n}", size, 0) for n, size in enumerate(sizes)], tasks)
    assert [[file.size for file in files] for files in splits] == expected


def test_files_without_rows_are_no_copies(tmp_path: Path):
    """Whether they are empty, or have blank lines; a file that has a row is a copy."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, text in zip("abcdef", ("", "", "\n \n", "\n \n", "1\n", "1\n"), strict=True):
        (folder / name).write_text(text)
    selection = FileSelection(read(AS_THEY_ARE, tmp_path).files, Taken(), HadoopSettings())
    *files, copy = [with_digest(file, HadoopSettings()) for file in Folder(str(folder)).files()]
    assert selection.checked(files) == files
    with pytest.raises(FileError, match="EOS_FILE_COPIED"):
        selection.checked([*files, copy])


def test_a_file_that_is_put_back_with_the_time_that_it_once_had(tmp_path: Path):
    """What had that time was the same as the content that was taken then, and not as the one that is taken now."""
    taken, text = Taken(), AS_THEY_ARE.replace("format: json", "format: json, onChanged: take, onCopy: take")
    selection = FileSelection(read(text, tmp_path).files, taken, HadoopSettings())
    taken.add(File("f", 5, 1, "A"))
    touched, changed = File("f", 5, 2, "A"), File("f", 5, 3, "B")
    assert selection.is_due(touched) and selection.checked([touched]) == []
    assert not selection.is_due(touched)
    assert selection.checked([changed]) == [changed]
    taken.add(changed)
    assert selection.is_due(touched) and selection.checked([touched]) == [touched]
