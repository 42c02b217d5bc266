"""Delta table → topics: appended rows each once; what a stream of them cannot tell is an error by name; and tables that
only Spark reads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.support.runs.page_programs import run_program
from tests.support.tables.delta import ToKafka, session
from tests.support.waiting import TIMEOUT

MAPPED = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
VECTORS = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)"
NAMES = "SELECT id AS key, name AS value FROM input"
VALUES = "SELECT CAST(id AS STRING) AS value FROM input"


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
def test_rows_that_are_changed_end_a_stream_of_appends(back: ToKafka, view, change: str):
    """Whatever it is; rows of before are there once, and the error comes back at each start."""
    numbers(back, 0, 5)
    assert back.run(VALUES) is None
    back.sql(change)
    numbers(back, 5, 10)
    for _ in range(2):
        assert back.run(VALUES).condition == "EOS_DELTA_ROWS_CHANGED"
    assert out(view, back) == list(range(5))


@pytest.mark.chaos
def test_files_and_versions_that_are_gone_end_the_query(back: ToKafka, view, tmp_path: Path):
    """VACUUM after OPTIMIZE, before the query has read them; versions that are cleaned from the log."""
    numbers(back, 0, 5)
    assert back.run(VALUES) is None
    numbers(back, 5, 7)
    numbers(back, 7, 9)
    shutil.copytree(back.table, tmp_path / "copy")
    table = DeltaTable(str(back.table))
    table.optimize.compact()
    assert table.vacuum(0, enforce_retention_duration=False, dry_run=False)
    gone = back.run(VALUES)
    assert gone.condition == "EOS_DELTA_DATA_LOSS" and ".parquet" in gone.text
    assert out(view, back) == list(range(5))

    for file in (tmp_path / "copy").glob("*.parquet"):
        shutil.copy(file, back.table)
    assert back.run(VALUES) is None  # restored, as the error says
    assert out(view, back) == list(range(9))

    numbers(back, 9, 11)
    numbers(back, 11, 12)
    version = DeltaTable(str(back.table)).version()
    DeltaTable(str(back.table)).create_checkpoint()
    for file in (back.table / "_delta_log").glob("*.json"):
        if int(file.stem) < version:
            file.unlink()
    assert back.run(VALUES).condition == "EOS_DELTA_DATA_LOSS"
    assert out(view, back) == list(range(9))


@pytest.mark.chaos
def test_another_table_ends_the_query(back: ToKafka, view):
    """A table that was created anew at the same path; none at all, and a version that there is not."""
    assert back.run(VALUES).condition == "EOS_DELTA_NO_TABLE"
    numbers(back, 0, 5)
    assert back.run(VALUES) is None
    shutil.rmtree(back.table)
    numbers(back, 0, 5)
    assert back.run(VALUES).condition == "EOS_OTHER_TABLE"
    shutil.rmtree(back.checkpoint)
    assert back.run(VALUES, source=", startingVersion: 2").condition == "EOS_DELTA_NO_TABLE"
    assert out(view, back) == list(range(5))


@pytest.mark.chaos
def test_added_columns_are_read_by_the_next_start(back: ToKafka, view):
    """Of a query that begins with a version, and goes on after it."""
    numbers(back, 0, 2)
    numbers(back, 2, 4)
    assert back.run(VALUES, source=", startingVersion: 2, maxFilesPerTrigger: 1") is None
    back.sql("ALTER TABLE {t} ADD COLUMN m INT")
    back.sql("INSERT INTO {t} VALUES (4, 40)")
    ended = back.run(VALUES, source=", maxFilesPerTrigger: 1")
    if ended is not None:
        assert ended.condition == "EOS_DELTA_SCHEMA_CHANGED"
        assert back.run(VALUES) is None
    assert out(view, back) == [2, 3, 4]


@pytest.mark.chaos
def test_a_delete_by_a_vector_ends_the_query(back: ToKafka, view) -> None:
    """As any other DELETE: no file says which rows are left."""
    numbers(back, 0, 3)
    back.sql(VECTORS)
    assert back.run(VALUES) is None
    back.sql("DELETE FROM {t} WHERE id = 1")
    numbers(back, 3, 4)
    ended = back.run(VALUES)
    assert ended is not None and ended.condition == "EOS_DELTA_ROWS_CHANGED" and "DELETE" in ended.text
    assert out(view, back) == [0, 1, 2]


def by_spark(servers: str, topic: str, table: str, checkpoint: str) -> None:
    """In the process: the program of docs/delta.md, until it has read all that there is."""
    names = {"localhost:9092": servers, '"people"': f'"{topic}"', "/data/people": table, "/data/checkpoint": checkpoint}
    names |= {".start()": ".trigger(availableNow=True).start()"}
    query: Any = run_program("delta.md", 'readStream.format("delta")', names, spark=session())["query"]
    assert query.awaitTermination(TIMEOUT) and query.exception() is None


@pytest.mark.chaos
@pytest.mark.parametrize("table", [MAPPED, VECTORS], ids=["column mapping", "deletion vectors"])
def test_a_table_that_only_spark_reads_is_read_by_its_own_source(back: ToKafka, delta, cluster, view, table) -> None:
    """The job refuses it, and names that way; each row is in the topic once, and none that a vector deletes."""
    back.sql("CREATE TABLE {t} (id STRING, name STRING) USING delta")
    back.sql(table)
    back.sql("INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM VALUES ('a', '1'), ('b', '2'), ('c', '3')")
    back.sql("DELETE FROM {t} WHERE id = 'b'")
    refused = back.run(NAMES)
    assert refused is not None and refused.condition == "EOS_DELTA_TABLE_SETTINGS" and "docs/delta.md" in refused.text
    shutil.rmtree(back.checkpoint, ignore_errors=True)
    for _ in range(2):
        delta(by_spark, cluster.bootstrap_servers, back.topic, str(back.table), str(back.checkpoint))
    assert {row.key: row.value for row in view.rows(back.topic)} == {
        b"a": b'{"id":"a","name":"1"}',
        b"c": b'{"id":"c","name":"3"}',
    }
    assert len(view.rows(back.topic)) == 2
    again = back.run(NAMES)
    assert again is not None and again.condition == "EOS_DELTA_OTHER_SOURCE"
