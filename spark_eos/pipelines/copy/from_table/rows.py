"""Rows of a query from a table: Spark hands data files to the tasks, which read the rows themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_eos.pipelines.copy.from_table.plan import FromTablePlan
from spark_eos.pipelines.copy.rows import RowsByRange

if TYPE_CHECKING:
    from spark_eos.spi import Task, TaskReport


@dataclass(frozen=True)
class TableRows(RowsByRange):
    """See `spark_eos.sink.job.RowSource`."""

    plan: FromTablePlan

    def write(self, task: Task, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """In a task: write the rows of the files that ``batches`` name."""
        from spark_eos.pipelines.copy.from_table.task import run_task

        return run_task(self.plan, task, batches)
