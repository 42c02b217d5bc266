"""The data source of one query from topics to a table: ranges as Spark's rows, and the writer of their records."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from spark_eos.copy.source import RangeDataSource, RangeStreamReader
from spark_eos.copy.table.plan import TablePlan


class TableDataSource(RangeDataSource):
    """From topics to a table."""

    _plan: TablePlan

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader that hands ranges to the tasks, not records."""
        return RangeStreamReader(self._plan.source, self._plan.written, self._events)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer, for tasks, commit and abort alike."""
        from spark_eos.copy.table.writer import TableStreamWriter

        return TableStreamWriter(self._plan, self._events)
