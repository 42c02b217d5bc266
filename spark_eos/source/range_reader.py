"""Readers whose rows are ranges: Spark schedules and hands them out, and only tasks of the same query read them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_eos.base.metrics_events import NOWHERE, Events
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.checkpoint import offset_log
from spark_eos.checkpoint.offset_log import Position
from spark_eos.kafka.admin.topics import cluster_id
from spark_eos.options.parse import SourceOptions
from spark_eos.source import range_math
from spark_eos.source.losses import check_cluster
from spark_eos.source.plan import NO_LIMIT, ranges_between
from spark_eos.source.reader import EosKafkaStreamReader, SparkOffset, read_position
from spark_eos.spark.tracebacks import hidden_traceback
from spark_eos.spark.versions import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from spark_eos.spark.worker_exit import quiet_here

#: A row: one range, and how many tasks the micro-batch has, pickled.
RANGE_SCHEMA = StructType([StructField("range", BinaryType())])
_ARROW_SCHEMA = pa.schema([("range", pa.binary())])


@dataclass(frozen=True)
class RangesOfTask(InputPartition):
    """Ranges that one task reads, in this order: of topics (`OffsetRange`), or whatever a source has in their place.
    ``tasks``: how many tasks the micro-batch has."""

    ranges: tuple[Any, ...]
    tasks: int

    @classmethod
    def parse(cls, batches: Iterable[pa.RecordBatch]) -> RangesOfTask:
        """Parse the result of `TaskRangeReader.read`, in a task of the sink."""
        rows = [pickle.loads(row) for batch in batches for row in batch.column(0).to_pylist()]
        return cls(tuple(range_ for range_, _ in rows), max((tasks for _, tasks in rows), default=1))


class TaskRangeReader(DataSourceStreamReader):
    """The part of a reader that travels to the tasks, and hands them their ranges, a row each."""

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskRangeReader, ()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's ranges. The sink reads their records."""
        quiet_here()
        assert isinstance(partition, RangesOfTask)
        rows = [pickle.dumps((range_, partition.tasks)) for range_ in partition.ranges]
        yield pa.RecordBatch.from_arrays([pa.array(rows, pa.binary())], schema=_ARROW_SCHEMA)

    @staticmethod
    def with_counts(offset: dict[str, Any], **counts: Mapping[str, int] | None) -> dict[str, Any]:
        """Return an offset for the query's progress, with these counts, as far as there are any, beside it."""
        return offset | offset_log.as_marks({name: dict(count) for name, count in counts.items() if count is not None})


class RangeReader(TaskRangeReader, SupportsTriggerAvailableNow):
    """A reader that plans ranges of its own, within its own limits."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return no limit of Spark's."""
        return ReadMaxRows(NO_LIMIT)

    def commit(self, end: SparkOffset) -> None:
        """Do nothing: positions are kept in the offset log only."""

    def stop(self) -> None:
        """Do nothing: the clients belong to the process."""


class KafkaRangeReader(TaskRangeReader, EosKafkaStreamReader):
    """Plans as `EosKafkaStreamReader` does, and hands ranges of topics to the tasks. ``cores``: of Spark when the query
    started, None where they are not known. Subclasses do more before a micro-batch is logged, or its tasks run."""

    def __init__(self, options: SourceOptions, cores: int | None = None, events: Events = NOWHERE) -> None:
        super().__init__(options, events)
        self._cores = cores
        self._offsets: int | None = None  # of the micro-batch that was planned last

    def _marked(self, position: Position) -> Position:
        return replace(position, copy=True)

    @hidden_traceback()
    def latestOffset(self, start: SparkOffset | None = None, limit: ReadLimit | None = None) -> SparkOffset:
        """Plan as the base does, and count the offsets of the planned micro-batch."""
        before = start or self._reached
        if not self._run.begun and before == self._initial:
            before = None  # the offset log does not hold it yet
        end = super().latestOffset(start, limit)
        after = offset_log.from_spark(end)
        ranges = [] if start is None else ranges_between(offset_log.from_spark(start), after)
        self._offsets = None if start is None else sum(r.size for r in ranges)
        logged = None if before is None else offset_log.from_spark(before)
        self._check_planned(logged, after, ranges, is_new=end != start)
        return end

    def reportLatestOffset(self) -> SparkOffset | None:
        """Return the lag and two counts: ``#planned``, the number of offsets in the micro-batch and thus the most rows
        that it can have; and ``#written``, rows and bytes of the micro-batch before, as only the tasks of a micro-batch
        find out its own."""
        report = super().reportLatestOffset()
        if report is None:
            return None
        planned = None if self._offsets is None else {"offsets": self._offsets}
        return self.with_counts(report, planned=planned, written=self._last_written())

    @hidden_traceback()
    def partitions(self, start: SparkOffset, end: SparkOffset) -> list[RangesOfTask]:  # type: ignore[override]  # other tasks than the base's
        """Return the ranges of one micro-batch, by the offset log alone, so that a replay has the same ones.

        A new one's ranges must be there. A replay's are not looked at, as perhaps none has to be read again: if one
        has, and is gone, its task finds out, and fails or leaves it out.
        """
        logged = read_position(end)
        check_cluster(logged.cluster, cluster_id(self._client))
        self._note_running(start, end)
        ranges = ranges_between(read_position(start), logged)
        if end == self._planned:
            self._readable(ranges, logged, planned_now=True)
        self._prepare(ranges, logged)
        options = self._options
        tasks = range_math.tasks(ranges, options.min_partitions, options.max_records_per_partition, self._cores)
        return [RangesOfTask(task.ranges, len(tasks)) for task in tasks]

    @property
    def _beginning(self) -> Position:
        """The position at which this run's query began, if it has asked for it."""
        return offset_log.from_spark(self._initial or {})

    # For subclasses

    def _last_written(self) -> Mapping[str, int] | None:
        """Return the counts of the last micro-batch that is committed, if they are known."""
        return None

    def _check_planned(
        self, before: Position | None, end: Position, ranges: Sequence[OffsetRange], *, is_new: bool
    ) -> None:
        """Check a micro-batch before its ``end`` is logged. ``before``: the last logged position; None without one, as
        the query begins. ``is_new``: there is something to do. Raises EosError, and then it is never logged."""

    def _prepare(self, ranges: Sequence[OffsetRange], end: Position) -> None:
        """Prepare or check the targets before a task writes. ``end``: of the micro-batch. Raises EosError."""
