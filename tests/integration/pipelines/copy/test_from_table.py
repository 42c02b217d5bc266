"""`spark_eos.copy` from a Delta table: each appended row once, whoever else writes and however often it starts."""

from __future__ import annotations

import uuid
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.judges.conditions import raises
from tests.support.queries.from_table_queries import FromTable
from tests.support.queries.sink_queries import ended_by
from tests.support.spark.session_faults import armed
from tests.support.waiting import wait_for

SQL = "SELECT concat(p, '-', n) AS key, concat('v', value) AS value, 1::INTEGER AS partition FROM input"


@pytest.fixture
def query(spark, view, topic, tmp_path):
    yield FromTable(spark, view, tmp_path / uuid.uuid4().hex, topic(2))
    for running in spark.streams.active:
        running.stop()


def test_rows_that_are_there_and_those_that_come_are_written_once(query) -> None:
    """In several micro-batches, again in later runs, and though the table is compacted meanwhile."""
    query.reads = {"maxFilesPerTrigger": 2}
    for n in range(5):
        query.append(f"{n}.0", f"{n}.1")
    id_ = query.run()
    assert query.values() == sorted(f"{n}.{i}" for n in range(5) for i in range(2))
    query.append("5.0", "5.1")
    DeltaTable(str(query.table)).optimize.compact()
    query.append("6.0", "6.1")
    assert query.run() == query.run() == id_
    assert query.values() == sorted(f"{n}.{i}" for n in range(7) for i in range(2))
    assert len(list((query.checkpoint / "offsets").glob("[0-9]*"))) == 4


def test_sql_gets_the_tables_columns(query) -> None:
    """Those of partitions are not in the files."""
    rows = pa.table({"value": ["a", "b", "c"], "p": ["x", "x", "y z"], "n": pa.array([1, 2, None], pa.int32())})
    write_deltalake(str(query.table), rows, partition_by=["p", "n"])
    query.run(SQL)
    found = Counter((row.partition, row.key, row.value) for row in query.rows())
    assert found == Counter([(1, b"x-1", b"va"), (1, b"x-2", b"vb"), (1, b"y z-", b"vc")])


def test_a_replay_of_what_is_visible_reads_no_file(query) -> None:
    """VACUUM may have removed all of them."""
    query.append("1")
    query.append("2")
    query.run()
    query.forget(0)
    for file in query.table.glob("*.parquet"):
        file.unlink()
    query.append("3")
    query.run()
    assert query.values() == ["1", "2", "3"]


@pytest.mark.parametrize("transform", [None, "SELECT upper(value) AS value FROM input"])
def test_what_was_lost_is_written_again_and_nothing_else(query, tmp_path, transform) -> None:
    """Of two decided transactions one is aborted; the files of its rows are found in the log of the table."""
    for n in range(4):
        query.append(*(f"r{n}.{i}" for i in range(10)))
    with armed(query.spark, "commit.decided=hold@1", tmp_path / "faults") as fault:
        started = query.start(transform)
        fault.wait()
        names = sorted(query.view.open_transactions(started.id))
        assert len(names) > 1
        query.view.end_transaction(names[0], commit=False)
        fault.release()
        ended_by(started, "EOS_TRANSACTION_LOST")
    wait_for(lambda: not query.view.held(query.topic), "the markers")
    there = len(query.values())
    assert 0 < there < 40
    query.append("later")
    query.run(transform)
    expected = sorted([*(f"r{n}.{i}" for n in range(4) for i in range(10)), "later"])
    assert query.values() == [value if transform is None else value.upper() for value in expected]


def test_a_task_that_fails_and_is_repeated_doubles_nothing(query, tmp_path) -> None:
    """After its rows are written."""
    query.append(*(str(n) for n in range(100)))
    with armed(query.spark, "prepare.flushed=fail@1", tmp_path / "faults") as fault:
        query.stopped_by("prepare.flushed")
        assert fault.marker.exists()
    query.run()
    assert query.values() == sorted(str(n) for n in range(100))


def test_rows_that_are_removed_stop_the_query(query) -> None:
    """Everything before that is written."""
    query.append("1", "2")
    query.run()
    query.append("3")
    DeltaTable(str(query.table)).delete("value = '1'")
    query.reads = {"maxFilesPerTrigger": 1}
    assert "DELETE" in query.stopped_by("EOS_DELTA_ROWS_CHANGED")
    assert query.values() == ["1", "2", "3"]


def test_new_columns_stop_a_running_query_until_its_next_start(query) -> None:
    """Rows of before have null there."""
    query.append("1")
    running = query.start("SELECT value FROM input", {"processingTime": "100 milliseconds"})
    wait_for(lambda: query.values() == ["1"], "the first row")
    rows = pa.table({"value": ["2"], "more": ["m"]})
    write_deltalake(str(query.table), rows, mode="append", schema_mode="merge")
    ended_by(running, "EOS_DELTA_SCHEMA_CHANGED")
    query.run("SELECT value FROM input")
    assert query.values() == ["1", "2"]


def test_files_that_are_gone_stop_the_query(query, tmp_path) -> None:
    """Nothing of their micro-batch is visible; when they are restored, it goes on."""
    query.append("1")
    query.append("2")
    file = next(iter(query.table.glob("*.parquet")))
    gone = file.rename(tmp_path / file.name)
    query.stopped_by("EOS_DELTA_DATA_LOSS")
    assert query.values() == []
    gone.rename(file)
    query.run()
    assert query.values() == ["1", "2"]


def test_what_is_for_topics_is_refused(query) -> None:
    """Arguments of `spark_eos.copy`."""
    query.append("1")
    query.more = {"on_malformed": "drop"}
    with raises("EOS_OPTION_CONFLICT.remove") as error:
        query.start()
    assert "on_malformed" in error.value.message
