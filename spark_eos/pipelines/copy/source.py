"""The data source of one query: its source gives Spark ranges as rows, its sink reads what they stand for.

Spark keeps a data source as bytes that it never prints, so the plan, with the user's function and secrets, is in a
class that is made for the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from spark_eos.base.metrics_events import NOWHERE, Events
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.checkpoint import offset_log
from spark_eos.checkpoint.offset_log import Position
from spark_eos.datasource.provider import EosKafkaDataSource
from spark_eos.pipelines.copy.checks import check_targets
from spark_eos.pipelines.copy.plan import CopyPlan
from spark_eos.pipelines.copy.rows import CopiedRows
from spark_eos.pipelines.copy.written import LastWritten
from spark_eos.source import range_math
from spark_eos.source.losses import check_cluster
from spark_eos.source.plan import ranges_between
from spark_eos.source.reader import EosKafkaStreamReader, SparkOffset, read_position
from spark_eos.spark.versions import ReadLimit
from spark_eos.spi import SinkOptions, SourceOptions, by_value, cluster_id, hidden_traceback, quiet_here

if TYPE_CHECKING:
    from spark_eos.spi import RowSource

#: One range of a task, and how many tasks there are.
RANGE_SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("start", LongType()),
        StructField("end", LongType()),
        StructField("topic_id", StringType()),
        StructField("first_epoch", IntegerType()),
        StructField("last_epoch", IntegerType()),
        StructField("most_epoch", IntegerType()),
        StructField("tasks", IntegerType()),
    ]
)
_ARROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("topic_id", pa.string()),
        ("first_epoch", pa.int32()),
        ("last_epoch", pa.int32()),
        ("most_epoch", pa.int32()),
        ("tasks", pa.int32()),
    ]
)


class RangeDataSource(EosKafkaDataSource):
    """The data source of one query, made by `data_source_of`, whose plan says what becomes of the ranges."""

    @hidden_traceback()
    def schema(self) -> StructType:
        """The schema of Spark's rows, each of which is a range of offsets."""
        return RANGE_SCHEMA


D = TypeVar("D", bound=RangeDataSource)


def data_source_of(plan: object, name: str, events: Events, base: type[D]) -> type[D]:
    """The data source of one query, with this plan, to be registered under this name."""
    return by_value(base, _plan=plan, _events=events, name=classmethod(lambda cls: name))


def range_writer(sink: SinkOptions, rows: RowSource, events: Events, *, was_sent: bool) -> DataSourceStreamWriter:
    """The writer to topics; like that of `EosKafkaDataSource`, it checks the cluster when made for tasks, not when sent
    to commit or abort."""
    from spark_eos.sink.writer import EosKafkaStreamWriter

    writer = EosKafkaStreamWriter(sink, rows, events)
    if not was_sent:
        writer.plan()
    return writer


class CopyDataSource(RangeDataSource):
    """From topics to topics."""

    _plan: CopyPlan

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader that hands ranges to the tasks, not records."""
        return CopyStreamReader(self._plan, self._events)

    @hidden_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """See `range_writer`."""
        return range_writer(self._plan.sink, self._rows(), self._events, was_sent=self._was_sent)

    def _rows(self) -> CopiedRows:
        return CopiedRows(self._plan)


@dataclass(frozen=True)
class RangesOfTask(InputPartition):
    """What one task reads: its ranges, in this order. ``tasks``: how many tasks the micro-batch has."""

    ranges: tuple[OffsetRange, ...]
    tasks: int


class RangeStreamReader(EosKafkaStreamReader):
    """Plans as `EosKafkaStreamReader` does, and hands ranges to the tasks. ``written``: what commits note there is
    reported with the query's progress. ``cores``: see `range_math.tasks`."""

    def __init__(
        self, source: SourceOptions, written: LastWritten, events: Events = NOWHERE, cores: int | None = None
    ) -> None:
        super().__init__(source, events)
        self._written, self._cores = written, cores
        self._offsets: int | None = None  # of the micro-batch that was planned last

    def __reduce__(self) -> tuple[Any, ...]:
        return RangeStreamReader, (self._options, self._written, self._events)

    def _marked(self, position: Position) -> Position:
        return replace(position, copy=True)

    @hidden_traceback()
    def latestOffset(self, start: SparkOffset | None = None, limit: ReadLimit | None = None) -> SparkOffset:
        """Also counts the offsets of the micro-batch that is planned."""
        end = super().latestOffset(start, limit)
        ranges = [] if start is None else ranges_between(offset_log.from_spark(start), offset_log.from_spark(end))
        self._offsets = None if start is None else sum(r.size for r in ranges)
        return end

    def reportLatestOffset(self) -> SparkOffset | None:
        """Beside the lag, ``#planned``: the number of offsets of the micro-batch, which is the most that it can have of
        rows. How many these are, and their bytes, nobody knows before its tasks have read them: ``#written`` has those
        of the one before."""
        report = super().reportLatestOffset()
        if report is None:
            return None
        planned = {} if self._offsets is None else {"planned": {"offsets": self._offsets}}
        last = self._written.last()
        written = {} if last is None else {"written": dict(last)}
        return report | offset_log.as_marks(planned | written)

    @hidden_traceback()
    def partitions(self, start: SparkOffset, end: SparkOffset) -> list[RangesOfTask]:  # type: ignore[override]  # other tasks than the base's
        """The ranges of one micro-batch, by the offset log alone, so that a replay has the same ones.

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
        tasks = range_math.tasks(ranges, options.min_partitions, options.max_records_per_partition, self._cores)
        return [RangesOfTask(task.ranges, len(tasks)) for task in tasks]

    def _prepare(self, ranges: Sequence[OffsetRange], end: Position) -> None:
        """Prepare the targets before a task writes. ``end``: of the micro-batch. For subclasses."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: its ranges, a row each. The sink fetches their records."""
        quiet_here()
        assert isinstance(partition, RangesOfTask)
        rows = [(*astuple(r), partition.tasks) for r in partition.ranges]
        columns = [
            pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _ARROW_SCHEMA, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_ARROW_SCHEMA)


class CopyStreamReader(RangeStreamReader):
    """Plans ranges whose records go to topics."""

    def __init__(self, plan: CopyPlan, events: Events = NOWHERE) -> None:
        super().__init__(plan.source, plan.written, events, plan.cores)
        self._plan = plan

    def __reduce__(self) -> tuple[Any, ...]:
        return CopyStreamReader, (self._plan, self._events)

    def _prepare(self, ranges: Sequence[OffsetRange], end: Position) -> None:
        """Raises EosError for targets that do not fit."""
        check_targets(self._plan, ranges)
