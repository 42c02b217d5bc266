"""A query from topics to a table, as it travels to Spark's Python processes: with its data source, not as an option."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_eos.pipelines.copy.table.rows import TableTransform
from spark_eos.pipelines.copy.written import LastWritten
from spark_eos.pipelines.tables.target import Target
from spark_eos.spi import SourceOptions


@dataclass(frozen=True)
class TablePlan:
    """What is read, and the table it goes to.

    ``cluster``: the id of the source's cluster; empty where brokers do not report it. ``last``: the last micro-batch
    that the table had when the query started; tasks write nothing for it and those before. ``transform``: None where
    the source's columns are the table's. ``written``: where commits note what they wrote. ``cores``: of Spark when the
    query started; None where they are not known.
    """

    source: SourceOptions
    cluster: str
    table: Target
    last: int | None = None
    transform: TableTransform | None = None
    written: LastWritten = field(default=LastWritten(), kw_only=True)
    cores: int | None = field(default=None, kw_only=True)
