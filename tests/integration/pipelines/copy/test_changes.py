"""`spark_eos.copy` from the change data feed of a Delta table: each change once, and each key's in order, whoever
changes the table meanwhile and however often the query starts."""

from __future__ import annotations

import uuid
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.support.queries.from_table_queries import FromTable
from tests.support.queries.sink_queries import ended_by
from tests.support.spark.session_faults import armed
from tests.support.tables.change_feed import ChangedTable, by_library, check_order, state_after, written
from tests.support.waiting import wait_for

SQL = "SELECT key, value, _commit_version, _change_type FROM input"


@pytest.fixture
def query(spark, view, topic, tmp_path):
    """Of a table that is partitioned."""
    query = FromTable(spark, view, tmp_path / uuid.uuid4().hex, topic(3))
    query.reads = {"readChangeFeed": True}
    yield query
    for running in spark.streams.active:
        running.stop()


@pytest.fixture
def table(query) -> ChangedTable:
    """Without a version of rows."""
    return ChangedTable(query.table, "changes", ["p"])


def checked(query: FromTable, table: ChangedTable, snapshot: dict[str, str] | None = None, first: int = 0) -> None:
    """Consumers see the changes that another reader does, in each key's order. ``snapshot``: the rows that were read
    first, at the version before ``first``."""
    changes = written(query.rows())
    expected = by_library(table.path, first)
    expected += Counter((first - 1, "insert", key, value) for key, value in (snapshot or {}).items())
    assert Counter(changes) == expected
    check_order(changes)
    assert state_after(changes) == table.state


def test_the_table_comes_first_and_then_each_change_in_its_order(query, table) -> None:
    """In micro-batches of any size, by several starts of one query."""
    table.change(8)
    first, snapshot = table.version + 1, dict(table.state)
    assert snapshot
    id_ = query.run(SQL)
    table.change(6)
    assert query.run(SQL) == id_
    query.reads["maxFilesPerTrigger"] = 2
    table.change(10)
    assert query.run(SQL) == query.run(SQL) == id_
    checked(query, table, snapshot, first)


def test_changes_since_a_version_by_a_function_of_arrow_batches(query, table) -> None:
    """Its own headers come before version and kind; a replay of what is visible writes nothing."""
    table.change(12)
    query.reads |= {"startingVersion": 0, "maxFilesPerTrigger": 5}

    def outgoing(batch: pa.RecordBatch) -> pa.RecordBatch:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        headers = pa.array([[{"key": "own", "value": b"1"}]] * batch.num_rows, kind)
        return batch.select(["key", "value"]).append_column("headers", headers)

    query.run(outgoing)
    query.forget(max(int(file.name) for file in (query.checkpoint / "commits").glob("[0-9]*")))
    query.run(outgoing)
    checked(query, table)
    assert {tuple(name for name, _ in row.headers) for row in query.rows()} == {
        ("own", "delta.commit.version", "delta.change.type")
    }


def test_a_transform_makes_tombstones_of_deletes(query, table) -> None:
    """As a compacted topic wants them: a consumer that keeps the last value of each key has the table."""
    table.change(20)
    query.reads["startingVersion"] = 0
    query.run(
        "SELECT key, CASE WHEN _change_type <> 'delete' THEN value END AS value FROM input "
        "WHERE _change_type <> 'update_preimage'"
    )
    state = {}
    for row in sorted(query.rows(), key=lambda row: (row.partition, row.offset)):
        state[row.key.decode()] = None if row.value is None else row.value.decode()
    assert {key: value for key, value in state.items() if value is not None} == table.state
    assert None in state.values()


@pytest.mark.parametrize("shared", [False, True])
def test_what_was_lost_is_written_again_and_nothing_else(query, table, tmp_path, shared) -> None:
    """A decided transaction is aborted: that of all changes, or one of several, of rows that need no order."""
    table.change(9)
    query.reads |= {} if shared else {"startingVersion": 0}
    first, snapshot = (table.version + 1, dict(table.state)) if shared else (0, None)
    with armed(query.spark, "commit.decided=hold@1", tmp_path / "faults") as fault:
        started = query.start(SQL)
        fault.wait()
        names = sorted(query.view.open_transactions(started.id))
        assert (len(names) > 1) == shared
        query.view.end_transaction(names[0], commit=False)
        fault.release()
        ended_by(started, "EOS_TRANSACTION_LOST")
    wait_for(lambda: not query.view.held(query.topic), "the markers")
    assert bool(query.rows()) == shared
    table.change(5)
    query.run(SQL)
    checked(query, table, snapshot, first)


def test_changes_that_are_no_longer_recorded_stop_the_query(query, table) -> None:
    """What was recorded before is written."""
    table.insert()
    running = query.start(SQL, {"processingTime": "100 milliseconds"})
    wait_for(lambda: query.rows(), "the first rows")
    table.insert()
    DeltaTable(str(table.path)).alter.set_table_properties({"delta.enableChangeDataFeed": "false"})
    ended_by(running, "EOS_DELTA_TABLE_SETTINGS")
    assert state_after(written(query.rows())) == table.state
