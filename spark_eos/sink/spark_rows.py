"""Rows that Spark hands to the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_eos.sink.schema import Columns

if TYPE_CHECKING:
    from spark_eos.protocol.extra import Kind
    from spark_eos.protocol.task import TaskReport
    from spark_eos.sink.task import Task


@dataclass(frozen=True)
class SparkRows:
    """See `spark_eos.sink.job.RowSource`."""

    columns: Columns
    kind: Kind | None = None

    def write(self, task: Task, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write these rows; called in a task."""
        from spark_eos.sink.task import run_task

        return run_task(task, batches)

    def committed(self, batch: int, rows: int, size: int, dropped: int, read: int) -> None:
        """Do nothing, as nobody has to be notified."""
