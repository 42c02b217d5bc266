"""The config file of an ingest: what is wrong in it is said before Spark starts."""

from __future__ import annotations

import argparse
import json
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
from tests.unit.jobs.conftest import Loaded, Planned

NOTHING = argparse.Namespace()
ROOT = Path(__file__).parents[3]
INGEST = "ingest_files"


def test_the_example_says_the_defaults(loaded: Loaded):
    """What it does not say differs from what it says in nothing but the options of its format."""
    config = load(ROOT / "conf" / "ingest_files.yaml", IngestFiles, {"FILES": "/data"})
    assert plan(config, NOTHING).line == "/data/*.csv → invoices; ingest invoices; every 10 seconds"
    default = loaded(INGEST)
    assert (config.files.unchanged_s, config.trigger, config.restart, config.files.max_files_per_trigger) == (
        *(default.files.unchanged_s, default.trigger, default.restart, default.files.max_files_per_trigger),
    )


@pytest.mark.parametrize("pattern", ["*", "?_.csv", "[!_]*.csv", "[._a]*", "[{]*[/]", "[日]*", "[", "a[]b]*"])
def test_a_pattern_that_matches_a_name(pattern: str, loaded: Loaded):
    """Whatever its special letters."""
    assert loaded(INGEST, f"files: {{pattern: '{pattern}'}}").files.pattern == pattern


BY_ARROW, BY_FUNCTION = "{sql: -, arrow: 'os.path:join'}", "{sql: -, function: 'os.path:join'}"


@pytest.mark.parametrize(
    ("format_", "transform", "way"),
    [
        ("csv, schema: n INT", "{}", "through Spark: it runs 'transform.sql' of parsed csv"),
        ("json", "-", "past the JVM: without 'transform', lines of json are values as they are"),
        ("text", "-", "past the JVM: without 'transform', lines of text are values as they are"),
        ("parquet", "-", "past the JVM: without 'transform', columns of Parquet are the topic's"),
        ("text", "{}", "through Spark: it runs 'transform.sql'"),
        ("parquet", BY_FUNCTION, "through Spark: it runs 'transform.function'"),
        ("json", "{engine: duckdb}", "past the JVM: DuckDB runs 'transform.sql' with lines of json as they are"),
        (
            "parquet, onMalformed: drop",
            BY_ARROW,
            "past the JVM: tasks call 'transform.arrow' with rows of Parquet as they are",
        ),
    ],
)
def test_the_way_past_the_jvm_is_for_what_is_not_parsed(format_: str, transform: str, way: str, loaded: Loaded):
    """Without a transform, or with one of Arrow batches, Spark has nothing to do; the way and its reason are logged."""
    schema = "" if "schema" in format_ else ", schema: -"
    config = loaded(INGEST, f"files: {{format: {format_}{schema}}}, transform: {transform}")
    assert str(way_of(config.files, config.transform)) == f"rows are read {way}"


def test_sql_that_duckdb_refuses_is_said_before_spark_starts(planned: Planned):
    """For lines, whose columns are known; those of Parquet are known by its files."""
    wrong = "schema: -}, transform: {engine: duckdb, sql: SELECT string(sum(n)) AS value FROM input}"
    with pytest.raises(EosError, match=r"EOS_TRANSFORM_SQL.*with the columns value, _file, _line"):
        planned(INGEST, f"files: {{format: json, {wrong}")
    planned(INGEST, f"files: {{format: parquet, {wrong}")


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


def selection_of(loaded: Loaded, taken: Taken, **files: str) -> FileSelection:
    """Among files that go on as they are. ``files``: further keys of the section."""
    section = json.dumps({"format": "json", "schema": "-", **files})
    config = loaded(INGEST, f"files: {section}, transform: -")
    return FileSelection(config.files, taken, HadoopSettings())


def test_files_without_rows_are_no_copies(loaded: Loaded, tmp_path: Path):
    """Whether they are empty, or have blank lines; a file that has a row is a copy, unless files may be alike."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, text in zip("abcdef", ("", "", "\n \n", "\n \n", "1\n", "1\n"), strict=True):
        (folder / name).write_text(text)
    *files, copy = [with_digest(file, HadoopSettings()) for file in Folder(str(folder)).files()]
    selection = selection_of(loaded, Taken())
    assert selection.checked(files) == files
    with pytest.raises(FileError, match="EOS_FILE_COPIED"):
        selection.checked([*files, copy])
    assert selection_of(loaded, Taken(), onCopy="take").checked([*files, copy]) == [*files, copy]


def test_a_file_that_is_put_back_with_the_time_that_it_once_had(loaded: Loaded):
    """What had that time was the same as the content that was taken then, and not as the one that is taken now. Another
    content is an error, unless all of it is to be taken once more."""
    taken = Taken()
    selection = selection_of(loaded, taken, onChanged="take", onCopy="take")
    taken.add(File("f", 5, 1, "A"))
    touched, changed = File("f", 5, 2, "A"), File("f", 5, 3, "B")
    assert selection.is_due(touched) and selection.checked([touched]) == []
    assert not selection.is_due(touched)
    assert selection.checked([changed]) == [changed]
    with pytest.raises(FileError, match="EOS_FILE_CHANGED"):
        selection_of(loaded, taken).checked([touched, changed])
    taken.add(changed)
    assert selection.is_due(touched) and selection.checked([touched]) == [touched]
