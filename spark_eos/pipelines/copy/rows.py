"""Rows of a copy: Spark hands ranges of offsets to the tasks, which fetch the records themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from spark_eos.pipelines.copy.plan import CopyPlan
from spark_eos.pipelines.copy.written import LastWritten
from spark_eos.spi import Columns

if TYPE_CHECKING:
    from spark_eos.base.topic_partition import OffsetRange
    from spark_eos.pipelines.copy.task import Parts, PartsOf
    from spark_eos.spi import Kind, Part, Task, TaskReport


def rows_alone(plan: CopyPlan, copies: Parts, ranges: Iterable[OffsetRange]) -> Iterator[Part]:
    """The rows of the ranges, in order, and nothing beside them."""
    return copies.of(ranges)


class PlanByRange(Protocol):
    """A `CopyPlan`, or that of a query from a table."""

    @property
    def columns(self) -> Columns: ...
    @property
    def written(self) -> LastWritten: ...


class RowsByRange:
    """What the sink has to know of rows that tasks read by ranges. See `spark_eos.sink.job.RowSource`."""

    plan: PlanByRange

    @property
    def columns(self) -> Columns:
        """The columns of the rows that are written, whatever the columns of Spark's rows."""
        return self.plan.columns

    @property
    def kind(self) -> Kind:
        """See `RowSource.kind`."""
        from spark_eos.pipelines.copy.ranges import RANGES

        return RANGES

    def committed(self, batch: int, rows: int, size: int, dropped: int, read: int) -> None:
        """Note the micro-batch for the source's part of the query's progress."""
        self.plan.written.note(batch, rows, size, dropped)


@dataclass(frozen=True)
class CopiedRows(RowsByRange):
    """See `spark_eos.sink.job.RowSource`. ``parts_of``: what a task writes into its transaction; a function that
    Spark's Python processes can import."""

    plan: CopyPlan
    parts_of: PartsOf = rows_alone

    def write(self, task: Task, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """In a task: write the rows of the ranges that ``batches`` hold."""
        from spark_eos.pipelines.copy.task import run_task

        return run_task(self.plan, task, batches, self.parts_of)
