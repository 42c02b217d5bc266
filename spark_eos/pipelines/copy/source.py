"""The data source of one query: its source gives Spark ranges as rows, its sink reads their records.

Spark keeps a data source as bytes that it never prints, so the plan, with the user's function and secrets, is in a
class that is made for the query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from spark_eos.base.metrics_events import NOWHERE, Events
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.checkpoint import offset_log
from spark_eos.checkpoint.offset_log import Position
from spark_eos.datasource.provider import EosKafkaDataSource
from spark_eos.pipelines.copy.checks import check_targets
from spark_eos.pipelines.copy.plan import CopyPlan, FromTopics, RangePlan, ToTopics
from spark_eos.pipelines.copy.rows import RANGE_SCHEMA, RangeReader, RangesOfTask
from spark_eos.source import range_math
from spark_eos.source.losses import check_cluster
from spark_eos.source.plan import ranges_between
from spark_eos.source.reader import EosKafkaStreamReader, SparkOffset, read_position
from spark_eos.spark.versions import ReadLimit
from spark_eos.spi import broker_client, by_value, cluster_id, hidden_traceback

if TYPE_CHECKING:
    from spark_eos.spi import RowSource


@dataclass(frozen=True)
class RangeJob:
    """A query over ranges: its plan, and functions that make its reader and its writer. The latter is also told whether
    the writer is for a commit or an abort, rather than for tasks."""

    plan: RangePlan
    reader: Callable[[Any, Events], DataSourceStreamReader]
    writer: Callable[[Any, Events, bool], DataSourceStreamWriter]


def to_topics(
    rows: Callable[[Any], RowSource], plan: ToTopics, events: Events, was_sent: bool
) -> DataSourceStreamWriter:
    """Return the writer to topics. ``rows``: makes them of the plan. Like the writer of `EosKafkaDataSource`, that for
    tasks checks the cluster. Raises EosError."""
    from spark_eos.sink.writer import EosKafkaStreamWriter

    writer = EosKafkaStreamWriter(plan.sink, rows(plan), events)
    if not was_sent:
        writer.plan()
    return writer


class RangeDataSource(EosKafkaDataSource):
    """The data source of one query, made by `data_source_of`."""

    _job: RangeJob

    @hidden_traceback()
    def schema(self) -> StructType:
        """Return the schema of Spark's rows, each of which is a range."""
        return RANGE_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that hands ranges to the tasks, not their records."""
        return self._job.reader(self._job.plan, self._events)

    @hidden_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """See `RangeJob.writer`."""
        return self._job.writer(self._job.plan, self._events, self._was_sent)


def data_source_of(job: RangeJob, name: str, events: Events) -> type[RangeDataSource]:
    """Return the data source of one query, to be registered under this name."""
    return by_value(RangeDataSource, _job=job, _events=events, name=classmethod(lambda cls: name))


class RangeStreamReader(RangeReader, EosKafkaStreamReader):
    """Plans as `EosKafkaStreamReader` does, and hands ranges to the tasks."""

    def __init__(self, plan: FromTopics, events: Events = NOWHERE) -> None:
        super().__init__(plan.source, events)
        self._plan = plan
        self._offsets: int | None = None  # of the micro-batch that was planned last

    def _marked(self, position: Position) -> Position:
        return replace(position, copy=True)

    @hidden_traceback()
    def latestOffset(self, start: SparkOffset | None = None, limit: ReadLimit | None = None) -> SparkOffset:
        """Plan as the base does, and count the offsets of the planned micro-batch."""
        end = super().latestOffset(start, limit)
        ranges = [] if start is None else ranges_between(offset_log.from_spark(start), offset_log.from_spark(end))
        self._offsets = None if start is None else sum(r.size for r in ranges)
        return end

    def reportLatestOffset(self) -> SparkOffset | None:
        """Return the lag and two counts: ``#planned``, the number of offsets in the micro-batch and thus the most rows
        that it can have; and ``#written``, rows and bytes of the micro-batch before, as only the tasks of a micro-batch
        find out its own."""
        report = super().reportLatestOffset()
        if report is None:
            return None
        planned = {} if self._offsets is None else {"planned": {"offsets": self._offsets}}
        last = self._plan.written.last()
        written = {} if last is None else {"written": dict(last)}
        return report | offset_log.as_marks(planned | written)

    @hidden_traceback()
    def partitions(self, start: SparkOffset, end: SparkOffset) -> list[RangesOfTask]:  # type: ignore[override]  # other tasks than the base's
        """Return the ranges of one micro-batch, by the offset log alone, so that a replay has the same ones.

        A new one must be there to read. A replay may read nothing: where something has to be, and is gone,
        the task finds out, and fails or leaves it out.
        """
        logged = read_position(end)
        check_cluster(logged.cluster, cluster_id(self._client))
        self._run_batch(start, end)
        ranges = ranges_between(read_position(start), logged)
        if end == self._planned:
            self._readable(ranges, logged, planned_now=True)
        self._prepare(ranges, logged)
        options = self._options
        tasks = range_math.tasks(ranges, options.min_partitions, options.max_records_per_partition, self._plan.cores)
        return [RangesOfTask(task.ranges, len(tasks)) for task in tasks]

    def _prepare(self, ranges: Sequence[OffsetRange], end: Position) -> None:
        """Prepare or check the targets before a task writes. ``end``: of the micro-batch. Raises EosError."""
        if isinstance(self._plan, CopyPlan):
            check_targets(broker_client(self._plan.sink.kafka), self._plan, ranges)
