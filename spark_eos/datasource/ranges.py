"""Queries whose rows are ranges, which their source plans and the tasks of their sink read.

Spark keeps a data source as bytes that it never prints, so all that a query is made of, with the user's function and
secrets, is in a class that is made for the query.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from spark_eos.base import metrics_events
from spark_eos.base.metrics_events import Events
from spark_eos.datasource.provider import EosKafkaDataSource
from spark_eos.options.parse import SinkOptions
from spark_eos.sink.ended import remember
from spark_eos.source.range_reader import RANGE_SCHEMA
from spark_eos.spark.by_value import by_value
from spark_eos.spark.tracebacks import hidden_traceback
from spark_eos.spark.versions import in_session


@dataclass(frozen=True)
class RangeQuery:
    """A query over ranges. ``reader`` and ``writer`` make its reader and its writer of the ``plan``; the latter is also
    told whether the writer is for a commit or an abort, rather than for tasks. ``sink``: where it writes to topics."""

    plan: Any
    reader: Callable[[Any, Events], DataSourceStreamReader]
    writer: Callable[[Any, Events, bool], DataSourceStreamWriter]
    sink: SinkOptions | None = None

    def start(
        self, spark: SparkSession, checkpoint: str, trigger: Mapping[str, object] | None, name: str | None
    ) -> StreamingQuery:
        """Return the query, started, which reads and writes by a data source of its own. ``trigger``: arguments of
        Spark's ``trigger``."""
        # Spark keeps all data sources of a session: a start replaces that of the start before.
        format_ = f"eos-kafka-copy-{hashlib.sha256(checkpoint.encode()).hexdigest()[:16]}"
        spark.dataSource.register(data_source_of(self, format_, metrics_events.here()))
        with in_session(spark):
            ranges = spark.readStream.format(format_).load()
            writer = ranges.writeStream.format(format_).option("checkpointLocation", checkpoint)
            if name is not None:
                writer = writer.queryName(name)
            if trigger:
                writer = writer.trigger(**trigger)  # type: ignore[call-overload]  # the caller has seen it
            query = writer.start()
        if self.sink is not None:
            remember(query, self.sink)
        return query


class RangeDataSource(EosKafkaDataSource):
    """The data source of one query, made by `data_source_of`."""

    _query: RangeQuery

    @hidden_traceback()
    def schema(self) -> StructType:
        """Return the schema of Spark's rows, each of which is a range."""
        return RANGE_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that hands ranges to the tasks, not their records."""
        return self._query.reader(self._query.plan, self._events)

    @hidden_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """See `RangeQuery.writer`."""
        return self._query.writer(self._query.plan, self._events, self._was_sent)


def data_source_of(query: RangeQuery, name: str, events: Events) -> type[RangeDataSource]:
    """Return the data source of one query, to be registered under this name."""
    return by_value(RangeDataSource, _query=query, _events=events, name=classmethod(lambda cls: name))
