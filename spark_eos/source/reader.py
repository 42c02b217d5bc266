"""The streaming source on the driver: offsets in, offsets out, ranges for the tasks.

Spark calls it, in a Python process of its own that lives as long as the query::

    new query    initialOffset → latestOffset → [micro-batch 0: partitions] → latestOffset → [1: partitions] → …
    restart      partitions of the last logged micro-batch → latestOffset → …
    restart that finds micro-batch 0 logged but not committed: initialOffset → partitions → latestOffset → …

A Spark without admission control (4.1) calls latestOffset without saying where the micro-batch starts or whether it
will ask again: its triggers Once and AvailableNow are one micro-batch. There, a restart begins with partitions of an
empty range at the last logged offset.

A Python source does not know its checkpoint, so in the last case Spark calls initialOffset again. That skips and
repeats nothing, as `spark_eos.source.plan.next_batch` lets micro-batch 0 read nothing, or only from a fixed beginning.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_eos.base import system
from spark_eos.base.log import logger
from spark_eos.base.metrics_events import NOWHERE, Events
from spark_eos.base.topic_partition import OffsetRange, PartitionOffsets, by_topic, flat
from spark_eos.checkpoint import offset_log
from spark_eos.checkpoint.offset_log import Position
from spark_eos.errors import stop
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.options.parse import SourceOptions
from spark_eos.source import range_math
from spark_eos.source.bounds import resolve_start
from spark_eos.source.byte_limit import Sizes, look_at
from spark_eos.source.fetching import Fetching
from spark_eos.source.group import GroupReport
from spark_eos.source.lag import LagWatch
from spark_eos.source.losses import Losses, check_cluster
from spark_eos.source.plan import (
    NO_LIMIT,
    BatchInput,
    Next,
    Run,
    initial_position,
    missing_at_the_begin,
    next_batch,
    ranges_between,
    readable,
)
from spark_eos.source.questions import (
    DivergedFrom,
    DroppedOnPurpose,
    EpochsBefore,
    FirstOffsets,
    HighWatermarks,
    Question,
    StartingOffsets,
    TopicsNamed,
    TopicsThere,
    WithinBytes,
    answered,
)
from spark_eos.source.watch import TopicWatch
from spark_eos.spark.tracebacks import hidden_traceback
from spark_eos.spark.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    worker_uses_tcp,
)

SparkOffset = dict[str, dict[str, Any]]

#: Characters of a line that an error shows.
_SHOWN = 200


def read_position(logged: object) -> Position:
    """Return the position in a line of the offset log, as Spark hands it to this source of the query.

    Raises CheckpointError (EOS_CHECKPOINT_DAMAGED)."""
    try:
        return offset_log.position_of(logged)
    except ValueError as why:
        raise stop("EOS_CHECKPOINT_DAMAGED.not_of_kafka", line=json.dumps(logged)[:_SHOWN], why=why) from None


class EosKafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``readStream.format("eos-kafka")``. Travels to the tasks as its options only; each process has its own client.
    ``events``: where the lag is reported for metrics."""

    def __init__(self, options: SourceOptions, events: Events = NOWHERE) -> None:
        self._options, self._events = options, events
        self._name = uuid.uuid4().hex  # by which events and progress find together, as no source knows its query
        self._losses = Losses(options.fail_on_data_loss)
        self._initial: SparkOffset | None = None
        #: Where the last plan of this run ends, and the last micro-batch that Spark has run.
        self._planned: SparkOffset | None = None
        self._reached: SparkOffset | None = None
        self._hinted = False
        #: The last lag that metrics were told was not zero.
        self._told_behind = False
        self._run = Run()

    def __reduce__(self) -> tuple[Any, ...]:
        return EosKafkaStreamReader, (self._options,)

    @cached_property
    def _client(self) -> BrokerClient:
        return broker_client(self._options.kafka)

    @cached_property
    def _watch(self) -> TopicWatch:
        return TopicWatch(self._client, self._options.selection, self._options.isolation)

    @cached_property
    def _lag(self) -> LagWatch:
        return LagWatch(self._client, self._watch, self._options.open_transaction_warn_ms / 1000)

    @cached_property
    def _sizes(self) -> Sizes:
        return Sizes(look_at(self._client, self._options.isolation))

    @cached_property
    def _group(self) -> GroupReport | None:
        group = self._options.report_group
        return GroupReport(self._client, group) if group else None

    # On the driver

    @hidden_traceback()
    def initialOffset(self) -> SparkOffset:
        """Return where a new query begins. Spark calls this more than once; the result stays the same within a run."""
        if self._initial is None:
            position = answered(initial_position(self._options, pinned=self._watch.pinned), self._answer)
            self._initial = offset_log.to_spark(self._marked(position))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit that is always a number of rows, so that ReadAllAvailable can only mean that the engine wants
        all in one micro-batch."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or NO_LIMIT)

    @hidden_traceback()
    def prepareForTriggerAvailableNow(self) -> None:
        """Let this run read up to the last stable offsets as they are now, and then end."""
        self._watch.pin()

    @hidden_traceback()
    def latestOffset(self, start: SparkOffset | None = None, limit: ReadLimit | None = None) -> SparkOffset:
        """Return where the next micro-batch ends; ``start`` itself when there is nothing to do. Everything before
        ``start`` has been processed, with any sink. A Spark without admission control passes neither argument.

        Raises CheckpointError (EOS_SOURCE_CLUSTER_CHANGED), DataLossError."""
        self._hint()
        start = (self._reached or self.initialOffset()) if start is None or start == {} else start
        position = read_position(start)
        if self._watch.pinned and self._reached not in (None, self._planned):
            self._watch.pin()  # Spark has replayed a micro-batch, which has read newer rows if a log was cut
        check_cluster(position.cluster, self._watch.topics().cluster)
        if self._group is not None:
            self._group.reach(position.offsets)
        if start != self._initial:
            self._run = replace(self._run, begun=True)
        decision = self._next(position, limit)
        while decision.outdated:
            if decision.hidden and self._watch.pinned:
                self._watch.pin()
            decision = self._next(position, limit)
        if decision.end is not None:
            self._planned = offset_log.to_spark(self._marked(decision.end))
            return self._planned
        if decision.caught_up:
            self._planned = start
            if self._group is not None and self._watch.pinned:
                self._group.finish()  # Spark ends this process when there is nothing left
        return start

    @hidden_traceback()
    def partitions(self, start: SparkOffset, end: SparkOffset) -> list[range_math.RangeTask]:
        """Return the ranges of one micro-batch. Raises DataLossError (EOS_SOURCE_DATA_LOSS) and CheckpointError
        (EOS_SOURCE_CLUSTER_CHANGED) before any task."""
        before, after = read_position(start), read_position(end)
        check_cluster(before.cluster, after.cluster or "")
        self._note_running(start, end)
        reads = self._readable(ranges_between(before, after), after, planned_now=end == self._planned)
        return range_math.tasks(reads, self._options.min_partitions, self._options.max_records_per_partition)

    def reportLatestOffset(self) -> SparkOffset | None:
        """Return, for the query's progress, the newest known last stable offsets, and each partition's lag as marks."""
        ends = self._watch.known_ends()
        if not ends:
            return None
        position = offset_log.from_spark(self._planned or self._initial or {})
        report = self._lag.report(position.offsets, ends, self._losses.count)
        name = {"source": self._name} if self._events else {}
        return offset_log.to_spark(Position(ends)) | offset_log.as_marks(report | name)

    def commit(self, end: SparkOffset) -> None:
        """Do nothing: the offset log alone has the offsets."""

    def stop(self) -> None:
        """Do nothing: the clients belong to the process."""

    # In the tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task's ranges, as Arrow. Raises EosError."""
        from spark_eos.source.task import read_task  # which the driver's process has no use for

        assert isinstance(partition, range_math.RangeTask)
        with hidden_traceback():
            yield from read_task(Fetching.from_options(self._client, self._options), partition)

    # Steps

    def _marked(self, position: Position) -> Position:
        """Return the position with further marks for the offset log. For subclasses."""
        return position

    def _note_running(self, start: SparkOffset, end: SparkOffset) -> None:
        """Note that Spark runs this micro-batch: the offset log has its end, and so the query's beginning."""
        if start == self._initial and end != self._planned:
            begin, logged = offset_log.from_spark(start), offset_log.from_spark(end)
            self._losses.report_all(missing_at_the_begin(begin, logged, self._options))
        self._run, self._reached = replace(self._run, begun=True), end

    def _hint(self) -> None:
        """Log, once for each start, a setting that would make the query faster."""
        if not self._hinted and worker_uses_tcp():
            logger.info(
                "Spark talks to Python workers over TCP, which costs up to 40 ms in each stage and a fifth of the "
                "source's speed; set spark.python.unix.domain.socket.enabled=true when the session is created"
            )
        self._hinted = True

    def _next(self, position: Position, limit: ReadLimit | None) -> Next:
        """Look at the topics, plan the next micro-batch, and report losses and lag."""
        only_batch = limit is None or isinstance(limit, ReadAllAvailable)
        limit = limit or self.getDefaultReadLimit()
        there, ends = self._watch.look()
        if self._lag.watch(ends):
            self._tell_lag(position, ends)
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        inputs = BatchInput(there, ends, system.monotonic(), self._run, self._watch.pinned, max_rows, only_batch)
        decision = answered(next_batch(position, inputs, self._options), self._answer)
        self._run = decision.run
        self._losses.report_all(decision.losses)
        for sentence in decision.taken_up:
            logger.warning("%s", sentence)
        # Rows for a query that had no lag: Spark does not ask for a report while the micro-batch runs, however long.
        if decision.end is not None and not self._told_behind:
            self._tell_lag(position, ends)
        return decision

    def _tell_lag(self, position: Position, ends: PartitionOffsets) -> None:
        if self._events:
            report = self._lag.report(position.offsets, ends, self._losses.count)
            self._told_behind = any(partition["stable"] for of in report["lag"].values() for partition in of.values())
            self._events.tell("lag", source=self._name, **report)

    def _readable(self, ranges: list[OffsetRange], logged: Position, *, planned_now: bool) -> list[OffsetRange]:
        """Return the parts of the ranges that the cluster still has; the rest is reported. ``logged``: the
        micro-batch's end."""
        if not ranges:
            return []
        there = self._watch.topics() if planned_now else self._watch.named({r.topic for r in ranges})
        pinned = self._watch.pinned
        plan = readable(ranges, logged, there, self._options, planned_now=planned_now, pinned=pinned)
        result = answered(plan, self._answer)
        self._losses.report_all(result.losses)
        return list(result.ranges)

    def _answer(self, question: Question) -> object:
        """Return the cluster's answer to a question of a plan."""
        watch = self._watch
        match question:
            case EpochsBefore(offsets, least):
                return watch.epochs_at(offsets, least)
            case DivergedFrom(offsets, epochs):
                return watch.diverged(offsets, epochs)
            case HighWatermarks(partitions, after_ms):
                system.sleep(after_ms / 1000)
                return flat(watch.high_watermarks(by_topic(partitions)))
            case FirstOffsets(partitions):
                return flat(watch.begins(by_topic(partitions)))
            case WithinBytes(start, ends, most):
                return self._sizes.within(start, ends, most)
            case TopicsThere(now, after_ms):
                system.sleep(after_ms / 1000)
                return watch.topics(now=now)
            case TopicsNamed(names, after_ms):
                system.sleep(after_ms / 1000)
                return watch.named(names)
            case StartingOffsets():
                return resolve_start(self._options, watch, self._losses)
            case DroppedOnPurpose(topics):
                return self._dropped_on_purpose(topics)

    def _dropped_on_purpose(self, topics: Collection[str]) -> Collection[str]:
        """Return which of these topics, which are no longer read, are not a loss. For subclasses."""
        return ()
