"""Random histories of a table, read as changes: those that delta-rs reads, in each key's order, whatever is cut and run
again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.support.models.table_query import Query, Row
from tests.support.tables.change_feed import Change, ChangedTable, by_library, check_order, state_after


def _columns(batch: Any) -> Any:
    return batch.select(["key", "value"])


def _change(row: Row) -> Change:
    return row["_commit_version"], row["_change_type"], row["key"], row["value"]


@pytest.mark.parametrize("seed", range(8))
def test_changes_are_those_that_another_reader_finds(tmp_path, seed) -> None:
    """Each once, by whole versions, and the same ones in each replay, though the query is started again and again."""
    table = ChangedTable(tmp_path / "table", seed, ["p"] if seed % 2 else [])
    chance = table.chance
    table.change(chance.randint(0, 6))
    at_first = table.version
    begins = None if chance.random() < 0.5 else chance.randint(0, at_first)
    query, snapshot = Query(table.path, _columns, changes=True, starting_version=begins), dict(table.state)

    def run(files: int, size: int, batches: int) -> None:
        query.options |= {"files": files, "size": size}
        query.run(query.start(), batches)

    run(chance.randint(1, 4), 1 << 30, 1)
    for _ in range(4):
        table.change(chance.randint(0, 4))
        run(chance.randint(1, 12), chance.choice([1, 4000, 1 << 30]), chance.randint(0, 2))
    run(100, 1 << 30, 100)
    expected = (
        by_library(table.path, begins if begins is not None else at_first + 1)
        if (begins is not None or table.version > at_first)
        else Counter()
    )
    if begins is None:
        expected += Counter((at_first, "insert", key, value) for key, value in snapshot.items())
    changes = list(map(_change, query.rows()))
    assert Counter(changes) == expected, seed
    check_order(changes)
    for tasks in query.tasks:  # else the order of the tasks above would be one that nobody promises
        assert len(tasks) <= 1 or len({_change(row)[:2] for rows in tasks for row in rows}) == 1
    if begins in (None, 0):
        assert state_after(changes) == table.state, seed
