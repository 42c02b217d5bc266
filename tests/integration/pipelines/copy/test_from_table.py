"""`spark_eos.copy` from a Delta table: each appended row once, whoever else writes and however often it starts."""

from __future__ import annotations

import uuid

import pytest
from deltalake import DeltaTable

from tests.support.judges.conditions import raises
from tests.support.queries.from_table_queries import FromTable
from tests.support.queries.sink_queries import ended_by
from tests.support.spark.session_faults import armed
from tests.support.waiting import wait_for


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


def test_what_was_lost_is_written_again_and_nothing_else(query, tmp_path) -> None:
    """Of two decided transactions one is aborted; the files of its rows are found in the log of the table."""
    transform = "SELECT upper(value) AS value FROM input"
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
    assert query.values() == [value.upper() for value in expected]


def test_what_is_for_topics_is_refused(query) -> None:
    """Arguments of `spark_eos.copy`."""
    query.append("1")
    query.more = {"on_malformed": "drop"}
    with raises("EOS_OPTION_CONFLICT.remove") as error:
        query.start()
    assert "on_malformed" in error.value.message
