"""The data source of one query from topics to a table: ranges as Spark's rows, and the writer of their records."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from spark_eos.pipelines.copy.source import RangeDataSource, RangeStreamReader
from spark_eos.pipelines.copy.table.plan import TablePlan
from spark_eos.spi import hidden_traceback


class TableDataSource(RangeDataSource):
    """From topics to a table."""

    _plan: TablePlan

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader that hands ranges to the tasks, not records."""
        plan = self._plan
        return RangeStreamReader(plan.source, plan.written, self._events, plan.cores)

    @hidden_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer, for tasks, commit and abort alike. That of a micro-batch's tasks has credentials that are valid
        now. Raises TableError."""
        from spark_eos.pipelines.copy.table.writer import TableStreamWriter

        plan = self._plan if self._was_sent else replace(self._plan, table=self._plan.table.for_tasks())
        return TableStreamWriter(plan, self._events)
