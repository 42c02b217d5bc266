"""Rows of a query from a table: Spark hands data files to the tasks, which read the rows themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_eos.pipelines.copy.from_table.plan import FromTablePlan
from spark_eos.sink.schema import Columns

if TYPE_CHECKING:
    from spark_eos.protocol.extra import Kind
    from spark_eos.protocol.task import TaskReport
    from spark_eos.sink.job import Identity, SinkJob


@dataclass(frozen=True)
class TableRows:
    """See `spark_eos.sink.job.RowSource`."""

    plan: FromTablePlan

    @property
    def columns(self) -> Columns:
        """The columns of the rows that are written, whatever the columns of Spark's rows."""
        return self.plan.columns

    @property
    def kind(self) -> Kind:
        """See `RowSource.kind`."""
        from spark_eos.pipelines.copy.ranges import RANGES

        return RANGES

    def write(self, job: SinkJob, identity: Identity, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """In a task: write the rows of the files that ``batches`` name."""
        from spark_eos.pipelines.copy.from_table.task import run_task

        return run_task(self.plan, job, identity, batches)

    def committed(self, batch: int, rows: int, size: int, dropped: int, read: int) -> None:
        """Note the micro-batch for the source's part of the query's progress."""
        self.plan.written.note(batch, rows, size, dropped)
