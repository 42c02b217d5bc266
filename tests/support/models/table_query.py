"""A query from a table as Spark runs it, over a real table and without Kafka."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

from spark_eos.pipelines.copy.from_table import task
from spark_eos.pipelines.copy.from_table.plan import FromTablePlan
from spark_eos.pipelines.copy.from_table.source import FileStreamReader
from spark_eos.pipelines.copy.from_table.start import SourceTableOptions, planned
from spark_eos.source.range_reader import RangesOfTask

SINK = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}

Row = dict[str, Any]


def plan_of(
    path: Path | str, transform: Any = None, sink: dict[str, str] | None = None, **options: Any
) -> FromTablePlan:
    """Of a query whose checkpoint is beside the table."""
    given = SourceTableOptions(str(path), **options)
    folder = path.parent if isinstance(path, Path) else "/nowhere"
    writes = {**SINK, **(sink or {}), "checkpointLocation": f"{folder}/checkpoint"}
    return planned(given, writes, {}, transform, None if transform is None else "a name", 3)


class Query:
    """A query of Spark's, in little. ``logged``: its offset log; ``tasks``: the rows that each task of each micro-batch
    has read."""

    def __init__(self, path: Path | str, transform: Any = None, **options: Any) -> None:
        self.path, self.transform, self.options = path, transform, options
        self.logged: list[str] = []
        self.tasks: list[list[list[Row]]] = []

    def start(self) -> FileStreamReader:
        """Also anew: the last micro-batch is run again, and reads the same."""
        self._plan = plan_of(self.path, self.transform, **self.options)
        reader = FileStreamReader(self._plan)
        if self.logged:
            assert self._read(reader, len(self.logged) - 1) == self.tasks[-1]
        return reader

    def run(self, reader: FileStreamReader, batches: int = 100) -> None:
        """Until nothing is new, or so many micro-batches are run."""
        for _ in range(batches):
            start = json.loads(self.logged[-1]) if self.logged else reader.initialOffset()
            end = json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit()))
            if json.loads(end) == start:
                return
            self.logged.append(end)
            self.tasks.append(self._read(reader, len(self.logged) - 1))

    def _read(self, reader: FileStreamReader, batch: int) -> list[list[Row]]:
        start = json.loads(self.logged[batch - 1]) if batch else reader.initialOffset()
        plan, in_task = self._plan, pickle.loads(pickle.dumps(reader))
        found = []
        for partition in reader.partitions(start, json.loads(self.logged[batch])):
            files = RangesOfTask.parse(in_task.read(partition)).ranges
            ranges = task.TableRows(plan).copied_from(files).ranges
            looked_up = list(task.files_of(ranges, plan.table, {}))  # as a repair does
            assert [vars(file) for file in looked_up] == [vars(file) for file in files]
            found.append([row for read in task.read_files(plan, looked_up) for row in read.rows.to_pylist()])
        return found

    def rows(self) -> list[Row]:
        """All of them, micro-batch by micro-batch."""
        return [row for tasks in self.tasks for rows in tasks for row in rows]

    def values(self) -> list[str]:
        """Of all rows, sorted."""
        return sorted(row["value"] for row in self.rows())
