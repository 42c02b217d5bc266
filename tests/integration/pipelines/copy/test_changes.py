"""`spark_eos.copy` from the change data feed of a Delta table: each change once, and each key's in order, whoever
changes the table meanwhile and however often the query starts."""

from __future__ import annotations

import uuid
from collections import Counter

import pytest

from tests.support.queries.from_table_queries import FromTable
from tests.support.tables.change_feed import ChangedTable, by_library, check_order, state_after, written

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
