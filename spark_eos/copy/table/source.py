"""The data source of one query from topics to a table: ranges as Spark's rows, and the writer of their records."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from spark_eos.copy.source import RANGE_SCHEMA, RangeStreamReader
from spark_eos.copy.table.plan import TablePlan
from spark_eos.metrics_events import Events
from spark_eos.spark.by_value import by_value
from spark_eos.spark.datasource import EosKafkaDataSource
from spark_eos.spark.tracebacks import hidden_traceback


class TableDataSource(EosKafkaDataSource):
    """The data source of one query, made by `data_source_of`."""

    _plan: TablePlan

    @hidden_traceback()
    def schema(self) -> StructType:
        """The schema of Spark's rows, each of which is a range of offsets."""
        return RANGE_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader that hands ranges to the tasks, not records."""
        return RangeStreamReader(self._plan.source, self._plan.written, self._events)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer, for tasks, commit and abort alike."""
        from spark_eos.copy.table.writer import TableStreamWriter

        return TableStreamWriter(self._plan)


def data_source_of(plan: TablePlan, name: str, events: Events) -> type[TableDataSource]:
    """The data source of one query, registered under this name."""
    return by_value(TableDataSource, _plan=plan, _events=events, name=classmethod(lambda cls: name))
