"""A query from topics to a table: Spark hands out ranges, tasks write files, the driver commits them together."""

from __future__ import annotations

from dataclasses import dataclass

from spark_eos.pipelines.copy.plan import FromTopics
from spark_eos.pipelines.copy.table.rows import TableTransform
from spark_eos.pipelines.tables.target import Target


@dataclass(frozen=True)
class TablePlan(FromTopics):
    """A query from topics to a table.

    ``cluster``: the id of the source's cluster; empty where brokers do not report it. ``last``: the last micro-batch
    that the table had when the query started; tasks write nothing for it and earlier ones. ``transform``: None where
    the source's columns are the table's.
    """

    cluster: str
    table: Target
    last: int | None = None
    transform: TableTransform | None = None
