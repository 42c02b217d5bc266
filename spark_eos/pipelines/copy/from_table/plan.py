"""A query from a table to topics, as it travels to Spark's Python processes: with its data source, not as an option."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_eos.pipelines.copy.from_table.planning import Limits
from spark_eos.pipelines.copy.plan import Transform
from spark_eos.pipelines.copy.written import LastWritten
from spark_eos.pipelines.tables.delta.source import SourceTable
from spark_eos.spi import Columns, HadoopSettings, SinkOptions


@dataclass(frozen=True)
class FromTablePlan:
    """What is read, what becomes of it, and where it goes to.

    ``starting_version``: the first version whose files a new query reads; None for the table as it is. ``tasks``: the
    most that a micro-batch has. ``storage``: Hadoop's settings of file systems, by which tasks read files.
    ``written``: where commits note what they wrote.
    """

    table: SourceTable
    starting_version: int | None
    limits: Limits
    tasks: int
    storage: HadoopSettings
    transform: Transform
    sink: SinkOptions
    written: LastWritten = field(default=LastWritten(), kw_only=True)

    @property
    def columns(self) -> Columns:
        """The columns of the rows that are written."""
        return self.transform.columns
