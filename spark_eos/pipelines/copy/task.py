"""One attempt of one task of a copy: fetch its ranges, transform or copy, and write into a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter

from spark_eos.base.metrics_events import Events
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.pipelines.copy.plan import LETTER_COLUMNS, ByRange, CopyPlan, ToTopics, Transform
from spark_eos.pipelines.copy.ranges import RANGES, CopiedFrom, Noted, copied_by, noted_of, ranges_to_read, reported
from spark_eos.pipelines.copy.transforming import Chunk, chunks, digest_at, letters_of, rejection, transformed
from spark_eos.pipelines.registry.unknown_ids import check_unknown
from spark_eos.sink.writer import stream_writer
from spark_eos.source.copying import Copied
from spark_eos.spi import (
    Attempt,
    Columns,
    Decision,
    Kind,
    RangesOfTask,
    ReadableRanges,
    RowBatch,
    RowWriter,
    Task,
    TaskReport,
    WriteStats,
)


@dataclass(frozen=True)
class TaskRun:
    """Work of a task that has begun a transaction (not a run of the query).

    ``given``: the ranges that Spark gave to it; ``copied_from``: the same, as a decision has it. ``ranges``: the ranges
    to read, which in a repair belong to lost transactions of the ``decision`` on this micro-batch. ``unknown``: filled
    while rows are written, see `ByRange.unknown`.
    """

    given: tuple[Any, ...]
    copied_from: CopiedFrom
    ranges: tuple[OffsetRange, ...]
    decision: Decision | None
    attempt: Attempt
    unknown: dict[OffsetRange, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class RangeRows:
    """Rows that tasks read by ranges, and write to topics. See `spark_eos.sink.job.RowSource`."""

    plan: ToTopics
    kind: ClassVar[Kind] = RANGES

    @classmethod
    def writer(cls, plan: ToTopics, events: Events, was_sent: bool) -> DataSourceStreamWriter:
        """Return the writer of these rows: see `stream_writer`."""
        return stream_writer(plan.sink, cls(plan), events, was_sent=was_sent)

    @property
    def columns(self) -> Columns:
        return self.plan.columns

    def copied_from(self, given: Sequence[Any]) -> CopiedFrom:
        """Return the ranges that Spark ``given`` to a task, as a decision has them."""
        raise NotImplementedError

    def stats(self, run: TaskRun) -> Iterator[WriteStats]:
        """Read the records of a task's ranges, write their rows, and yield their stats. Raises EosError."""
        raise NotImplementedError

    def write(self, task: Task, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write the records of a task's ranges, or nothing if they are decided and not lost."""
        given = RangesOfTask.parse(batches)
        run = _begun(task, given, self.copied_from(given.ranges), self.plan.aside)
        if isinstance(run, TaskReport):
            return run
        report = reported(run.attempt.write(self.stats(run)), run.copied_from, run.ranges, run.unknown)
        if self.plan.transform is not None:
            return report
        return replace(report, bytes=run.attempt.writer.producer.bytes_written(besides=self.plan.aside))

    def committed(self, batch: int, rows: int, size: int, dropped: int, read: int) -> None:
        self.plan.written.note(batch, rows, size, dropped)


def _begun(task: Task, given: RangesOfTask, copied_from: CopiedFrom, aside: frozenset[str]) -> TaskRun | TaskReport:
    """Begin a transaction for the rows that the task has to write, or report that it has none, as all are decided and
    not lost. ``aside``: see `Attempt`. Raises EosError."""
    identity, head = task.identity, task.open()
    ranges = ranges_to_read(head.decision, identity.batch, identity.partition, given.tasks, copied_from)
    assignment = task.assign(head, copied_from.digest_by, repairs=bool(ranges))
    attempt = task.begin(head, assignment, aside) if ranges else None
    if attempt is None:
        return reported(task.without_rows(assignment), copied_from)
    decision = head.decision if head.decision is not None and head.decision.batch == identity.batch else None
    return TaskRun(given.ranges, copied_from, ranges, decision, attempt)


def _noted(decision: Decision | None) -> Noted | None:
    """Return `ByRange.unknown` as it was of each range that is lost; None where nothing is decided."""
    if decision is None:
        return None
    return {range_: ids for w in decision.lost for range_, ids in noted_of(w).items()}


class TopicRows(RangeRows):
    """Rows of ranges of topics."""

    plan: CopyPlan

    def copied_from(self, given: Sequence[OffsetRange]) -> CopiedFrom:
        plan, topics = self.plan, tuple(sorted({(r.topic, r.topic_id) for r in given}))
        return CopiedFrom(plan.cluster, topics, plan.transform.name if plan.transform else None, tuple(given))

    def stats(self, run: TaskRun) -> Iterator[WriteStats]:
        return RangeWriter.of_task(self.plan, run).written(run.ranges)


class RangeWriter:
    """Writes ranges of topics, range by range. ``noted``: of a decided micro-batch, the schema ids that were unknown in
    each range. ``unknown``: the ids that are unknown now, by the ranges so far that have any."""

    def __init__(
        self,
        plan: CopyPlan,
        readable: ReadableRanges,
        writer: RowWriter,
        noted: Noted | None = None,
        unknown: dict[OffsetRange, tuple[str, ...]] | None = None,
    ) -> None:
        self.unknown = {} if unknown is None else unknown
        self._noted = noted
        self.readable, self.writer, self._plan = readable, writer, plan

    @classmethod
    def of_task(cls, plan: CopyPlan, run: TaskRun) -> RangeWriter:
        """Return the writer of a task that has begun a transaction."""
        ids = dict((copied_by(run.decision) or run.copied_from).topics)
        readable = ReadableRanges.in_task(plan.source, plan.cluster, ids)
        return cls(plan, readable, run.attempt.writer, _noted(run.decision), run.unknown)

    def written(self, ranges: Iterable[OffsetRange]) -> Iterator[WriteStats]:
        """Write every range, in order, and yield the stats of its rows."""
        transform = self._plan.transform
        for range_ in self.readable.parts(ranges):
            if transform is None:
                yield stats_of(range_, self.copied(range_))
            else:
                yield from self._transformed(range_, transform)

    def copied(self, range_: OffsetRange) -> Copied:
        """Hand the range's records to the producer as they are. Raises TopicError (EOS_ROWS_EXPIRED)."""
        topic = self._plan.target(range_.topic)
        self.writer.look_up([topic])
        copied = self.readable.copy(range_, (topic, range_.partition), self.writer.producer)
        self.writer.check_age(topic, copied.oldest_dated_ms)
        return copied

    def _transformed(self, range_: OffsetRange, transform: Transform) -> Iterator[WriteStats]:
        """Write the rows that the transform makes of each chunk, and behind them the dead letters. Yields their stats,
        and how many records were read and dropped."""
        sink = self._plan.sink
        function = transform.function
        if isinstance(function, ByRange):
            noted = None if self._noted is None else self._noted.get(range_, ())
            function = function.for_range(noted)
            transform = replace(transform, function=function)
        for chunk in chunks(self.readable.records(range_)):
            done = transformed(transform, chunk)
            if isinstance(function, ByRange):
                self._note_unknown(range_, function.unknown)
            letters = self._letters(chunk, transform, done.rejected)
            rows, count = done.rows, done.rows.num_rows
            numbers = chunk.row_numbers(range_, count + letters.num_rows)
            if count:
                batch = RowBatch(rows, transform.columns, sink.topic, numbers[:count])
                yield replace(self.writer.write(batch), bytes=batch.bytes)
            if letters.num_rows:
                batch = RowBatch(letters, LETTER_COLUMNS, sink.dead_letters, numbers[count:])
                yield replace(self.writer.write(batch), bytes=batch.bytes, letters=letters.num_rows)
            dropped = len(done.rejected) if transform.on_malformed == "drop" else 0
            yield WriteStats(0, 0, read=chunk.rows.num_rows, dropped=dropped)

    def _note_unknown(self, range_: OffsetRange, ids: tuple[str, ...]) -> None:
        """Note the unknown ids. Raises RegistryError where a decision cannot note as many."""
        if ids:
            self.unknown[range_] = ids
            check_unknown(sum(map(len, self.unknown.values())))

    def _letters(self, chunk: Chunk, transform: Transform, rejected: Mapping[int, str]) -> pa.RecordBatch:
        """Return the dead letters of the records that the transform has rejected. Raises RowError where there may be
        none."""
        if transform.on_malformed == "deadLetters":
            return letters_of(chunk, rejected, self._plan.cluster)
        if rejected and transform.on_malformed == "fail":
            raise rejection(chunk.rows, rejected)
        return letters_of(chunk, {}, self._plan.cluster)


def stats_of(range_: OffsetRange, copied: Copied) -> WriteStats:
    """Return the stats of the rows that were copied of a range."""
    digest = digest_at(copied.digest, range_.topic, range_.partition, range_.start)
    return WriteStats(copied.rows, digest, copied.oldest_ms, read=copied.rows)
