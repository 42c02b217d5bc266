"""Delta table → topics: appended rows each once; what a stream of them cannot tell is an error by name. Whether the
rows pass through Spark or not, the promises are the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.delta_to_kafka import REFUSED, DeltaToKafka
from jobs.runner.config import load
from spark_eos.errors import ConfigError
from tests.support.delta import ToKafka

#: For Spark and for DuckDB.
VALUES = "SELECT CAST(id AS STRING) AS value FROM input"
ENGINES = pytest.mark.parametrize("engine", ["spark", "duckdb"])


def numbers(back: ToKafka, first: int, end: int, *, as_: str = "id") -> None:
    """Append these to the table, in a file."""
    created = "CREATE TABLE IF NOT EXISTS {t} (id BIGINT) USING delta"
    back.sql(created)
    back.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ id AS {as_} FROM range({first}, {end})")


def out(view, back: ToKafka) -> list[int]:
    return sorted(map(int, view.values(back.topic)))


@pytest.mark.chaos
@pytest.mark.parametrize(
    "change",
    ["DELETE FROM {t} WHERE id < 100", "UPDATE {t} SET id = id + 100 WHERE id = 1", "INSERT OVERWRITE {t} VALUES (7)"],
    ids=["delete", "update", "overwrite"],
)
@ENGINES
def test_rows_that_are_changed_end_a_stream_of_appends(back: ToKafka, view, change: str, engine: str):
    """Whatever it is; rows of before are there once, and the error comes back at each start."""
    numbers(back, 0, 5)
    assert back.run(VALUES, engine=engine) is None
    back.sql(change)
    numbers(back, 5, 10)
    for _ in range(2):
        assert back.run(VALUES, engine=engine).condition == "EOS_DELTA_ROWS_CHANGED"
    assert out(view, back) == list(range(5))


@pytest.mark.chaos
@ENGINES
def test_files_and_versions_that_are_gone_end_the_query(back: ToKafka, view, tmp_path: Path, engine: str):
    """VACUUM after OPTIMIZE, before the query has read them; versions that are cleaned from the log."""
    numbers(back, 0, 5)
    assert back.run(VALUES, engine=engine) is None
    numbers(back, 5, 7)
    numbers(back, 7, 9)
    shutil.copytree(back.table, tmp_path / "copy")
    table = DeltaTable(str(back.table))
    table.optimize.compact()
    assert table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    gone = back.run(VALUES, engine=engine)
    assert gone.condition == "EOS_DELTA_DATA_LOSS" and ".parquet" in gone.text
    assert out(view, back) == list(range(5))

    for file in (tmp_path / "copy").glob("*.parquet"):
        shutil.copy(file, back.table)
    assert back.run(VALUES, engine=engine) is None  # restored, as the error says
    assert out(view, back) == list(range(9))

    numbers(back, 9, 11)
    numbers(back, 11, 12)
    version = DeltaTable(str(back.table)).version()
    DeltaTable(str(back.table)).create_checkpoint()
    for file in (back.table / "_delta_log").glob("*.json"):
        if int(file.stem) < version:
            file.unlink()
    assert back.run(VALUES, engine=engine).condition == "EOS_DELTA_DATA_LOSS"
    assert out(view, back) == list(range(9))


@pytest.mark.chaos
@ENGINES
def test_another_table_ends_the_query(back: ToKafka, view, engine: str):
    """A table that was created anew at the same path; none at all, and a version that there is not."""
    assert back.run(VALUES, engine=engine).condition == "EOS_DELTA_NO_TABLE"
    numbers(back, 0, 5)
    assert back.run(VALUES, engine=engine) is None
    shutil.rmtree(back.table)
    numbers(back, 0, 5)
    assert back.run(VALUES, engine=engine).condition == "EOS_OTHER_TABLE"
    shutil.rmtree(back.checkpoint)
    assert back.run(VALUES, engine=engine, source=", startingVersion: 2").condition == "EOS_DELTA_NO_TABLE"
    assert out(view, back) == list(range(5))


@pytest.mark.chaos
def test_renamed_columns_end_the_query(back: ToKafka, view):
    """The stream cannot read files of both names."""
    numbers(back, 0, 5)
    back.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    assert back.run(VALUES) is None
    numbers(back, 5, 6)
    back.sql("ALTER TABLE {t} RENAME COLUMN id TO n")
    assert back.run("SELECT string(n) AS value FROM input").condition == "EOS_DELTA_SCHEMA_CHANGED"
    assert out(view, back) == list(range(5))


@pytest.mark.chaos
@ENGINES
def test_added_columns_are_read_by_the_next_start(back: ToKafka, view, engine: str):
    """Of a query that begins with a version, and goes on after it."""
    numbers(back, 0, 2)
    numbers(back, 2, 4)
    assert back.run(VALUES, engine=engine, source=", startingVersion: 2, maxFilesPerTrigger: 1") is None
    back.sql("ALTER TABLE {t} ADD COLUMN m INT")
    back.sql("INSERT INTO {t} VALUES (4, 40)")
    ended = back.run(VALUES, engine=engine, source=", maxFilesPerTrigger: 1")
    if ended is not None:
        assert ended.condition == "EOS_DELTA_SCHEMA_CHANGED"
        assert back.run(VALUES, engine=engine) is None
    assert out(view, back) == [2, 3, 4]


@pytest.mark.parametrize("option", REFUSED)
def test_options_that_lose_or_repeat_rows_are_refused_by_name(option: str, tmp_path: Path):
    """Before Spark starts, in any case of letters, with the reason."""
    job = ToKafka(None, "localhost:1", "t", tmp_path)
    with pytest.raises(
        ConfigError, match=f"EOS_CONFIG_INVALID_VALUE.*source.{option.upper()}.*this job refuses.*Remove it"
    ):
        load(job.config(VALUES, source=f", {option.upper()}: true"), DeltaToKafka)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"source": ", maxFiles: 1"}, "EOS_CONFIG_UNKNOWN_KEY"),
        ({"source": ", startingVersion: latest"}, "EOS_CONFIG_INVALID_VALUE"),
        ({"source": ", startingVersion: -1"}, "EOS_CONFIG_INVALID_VALUE"),
        ({"more": "tasks: 0"}, "EOS_CONFIG_INVALID_VALUE"),
        ({"more": "spark: {spark.sql.files.ignoreCorruptFiles: true}"}, "makes rows disappear"),
    ],
)
def test_mistakes_in_the_file_are_found_without_spark(tmp_path: Path, parts: dict[str, str], says: str):
    """A start at "latest" is one: if the first micro-batch is replayed, it would be another version."""
    with pytest.raises(ConfigError, match=says):
        load(ToKafka(None, "localhost:1", "t", tmp_path).config(VALUES, **parts), DeltaToKafka)
