"""Random histories of a table, read as changes: those that delta-rs reads, in each key's order, whatever is cut and run
again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spark_eos.pipelines.copy.from_table import task
from spark_eos.pipelines.copy.from_table.source import FileStreamReader
from spark_eos.pipelines.copy.from_table.start import SourceTableOptions, planned
from spark_eos.source.range_reader import RangesOfTask
from tests.support.tables.change_feed import Change, ChangedTable, by_library, check_order, state_after

SINK = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}


class Query:
    """A query of Spark's, in little: each call is a new start. ``tasks``: the changes of each task of each micro-batch,
    by its number."""

    def __init__(self, table: ChangedTable, begins: int | None) -> None:
        self.table, self.begins = table, begins
        self.logged: list[str] = []
        self.tasks: dict[int, list[list[Change]]] = {}

    def run(self, files: int, size: int, batches: int) -> None:
        """The last micro-batch again, and then so many new ones."""
        options = SourceTableOptions(str(self.table.path), self.begins, files, size, changes=True)
        folder = self.table.path.parent
        plan = planned(options, {**SINK, "checkpointLocation": f"{folder}/checkpoint"}, {}, _columns, "a name", 3)
        reader = FileStreamReader(plan)
        if self.logged:
            before = self.tasks[len(self.logged) - 1]
            assert self._read(reader, len(self.logged) - 1) == before
        for _ in range(batches):
            start = json.loads(self.logged[-1]) if self.logged else reader.initialOffset()
            end = json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit()))
            if json.loads(end) == start:
                return
            self.logged.append(end)
            self.tasks[len(self.logged) - 1] = self._read(reader, len(self.logged) - 1)

    def _read(self, reader: FileStreamReader, batch: int) -> list[list[Change]]:
        start = json.loads(self.logged[batch - 1]) if batch else reader.initialOffset()
        found = []
        for partition in reader.partitions(start, json.loads(self.logged[batch])):
            plan = reader._plan
            files = RangesOfTask.parse(reader.read(partition)).ranges
            ranges = task.TableRows(plan).copied_from(files).ranges
            looked_up = list(task.files_of(ranges, plan.table, {}))  # as a repair does
            assert [vars(file) for file in looked_up] == [vars(file) for file in files]
            found.append([change for read in task.read_files(plan, looked_up) for change in _changes(read.rows)])
        return found

    def changes(self) -> list[Change]:
        """All of them, micro-batch by micro-batch."""
        return [change for batch in sorted(self.tasks) for rows in self.tasks[batch] for change in rows]


def _columns(batch: Any) -> Any:
    return batch.select(["key", "value"])


def _changes(rows: Any) -> list[Change]:
    columns = (rows.column(name).to_pylist() for name in ("_commit_version", "_change_type", "key", "value"))
    return list(zip(*columns, strict=True))


def play(folder: Path, seed: int) -> None:
    """A history, during which a query is started again and again."""
    table = ChangedTable(folder / "table", seed, ["p"] if seed % 2 else [])
    chance = table.chance
    table.change(chance.randint(0, 6))
    at_first = table.version
    begins = None if chance.random() < 0.5 else chance.randint(0, at_first)
    query, snapshot = Query(table, begins), dict(table.state)
    query.run(chance.randint(1, 4), 1 << 30, 1)
    for _ in range(4):
        table.change(chance.randint(0, 4))
        query.run(chance.randint(1, 12), chance.choice([1, 4000, 1 << 30]), chance.randint(0, 2))
    query.run(100, 1 << 30, 100)
    expected = (
        by_library(table.path, begins if begins is not None else at_first + 1)
        if (begins is not None or table.version > at_first)
        else Counter()
    )
    if begins is None:
        expected += Counter((at_first, "insert", key, value) for key, value in snapshot.items())
    changes = query.changes()
    assert Counter(changes) == expected, seed
    check_order(changes)
    for tasks in query.tasks.values():  # else the order of the tasks above would be one that nobody promises
        assert len(tasks) <= 1 or len({(version, kind) for rows in tasks for version, kind, _, _ in rows}) == 1
    if begins in (None, 0):
        assert state_after(changes) == table.state, seed


@pytest.mark.parametrize("seed", range(8))
def test_changes_are_those_that_another_reader_finds(tmp_path, seed) -> None:
    """Each once, by whole versions, and the same ones in each replay."""
    play(tmp_path, seed)
