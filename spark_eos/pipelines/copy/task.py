"""One attempt of one task of a copy: fetch its ranges, transform or copy, and write into a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.admin.retention import check_age
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.pipelines.copy.copying import Copied, copy_range
from spark_eos.pipelines.copy.plan import LETTER_COLUMNS, ByRange, CopyPlan, Transform
from spark_eos.pipelines.copy.ranges import CopiedFrom, Noted, assign_ranges, copied_by, noted_of, reported
from spark_eos.pipelines.copy.readable import ReadableRanges
from spark_eos.pipelines.copy.transforming import Chunk, chunks, letters_of, of_place, rejection, transformed
from spark_eos.pipelines.registry.unknown_ids import check_unknown
from spark_eos.protocol.head import Digest
from spark_eos.sink.counting import size_of
from spark_eos.spi import (
    Attempt,
    Decision,
    Fetching,
    Part,
    RowBatch,
    RowWriter,
    Task,
    TaskReport,
    broker_client,
    read_range,
)


@dataclass(frozen=True)
class TaskRequest:
    """What Spark gave to a task. ``tasks``: how many the micro-batch has."""

    copied_from: CopiedFrom
    tasks: int


def requested_by(plan: CopyPlan, batches: Iterable[pa.RecordBatch]) -> TaskRequest:
    """The rows of one task: each is a range (`spark_eos.pipelines.copy.source.RANGE_SCHEMA`)."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    ranges = tuple(ranges_in(rows))
    topics = tuple(sorted({(r.topic, r.topic_id) for r in ranges}))
    tasks = max((row["tasks"] for row in rows), default=1)
    return TaskRequest(CopiedFrom(plan.cluster, topics, plan.transform_name, ranges), tasks)


def ranges_in(rows: Iterable[Mapping[str, Any]]) -> list[OffsetRange]:
    """The ranges in Spark's rows."""
    return [OffsetRange(**{field.name: row[field.name] for field in fields(OffsetRange)}) for row in rows]


@dataclass(frozen=True)
class Assigned:
    """What a task has to write, and into what. ``ranges``: those that Spark gave to it, or of a ``decision`` of this
    micro-batch, some of the lost ones."""

    ranges: tuple[OffsetRange, ...]
    decision: Decision | None
    digest_by: Digest
    producer: ArrowProducer
    writer: RowWriter
    attempt: Attempt


def assigned(task: Task, requested: TaskRequest, aside: frozenset[str] = frozenset()) -> Assigned | TaskReport:
    """Begin a transaction for what the task has to write, or report that this is nothing, as all is decided and not
    lost. ``aside``: see `Attempt`. Raises EosError."""
    job, identity = task.job, task.identity
    head = task.open()
    assignment, ranges = assign_ranges(
        head,
        identity.batch,
        identity.partition,
        requested.tasks,
        identity.attempt,
        requested.copied_from,
        partitioner=job.options.partitioner,
    )
    producer = task.begin(head, assignment) if ranges else None
    if producer is None:
        empty = TaskReport(assignment.work, identity.partition, 0, 0, digest_by=assignment.digest_by)
        return reported(empty, requested.copied_from)
    decision = head.decision if head.decision is not None and head.decision.batch == identity.batch else None
    writer = RowWriter(job.options, producer, task.session.client)
    attempt = Attempt(job, task.session, identity, assignment, producer, aside, writer.topic_ids)
    return Assigned(ranges, decision, assignment.digest_by, producer, writer, attempt)


def run_task(plan: CopyPlan, task: Task, batches: Iterator[pa.RecordBatch], parts_of: PartsOf) -> TaskReport:
    """Write what the task's ranges hold, or nothing if it is decided and not lost; the report for the driver."""
    requested = requested_by(plan, batches)
    found = assigned(task, requested, plan.aside)
    if isinstance(found, TaskReport):
        return found
    ranges, decision, producer = found.ranges, found.decision, found.producer
    of_topics = (copied_by(decision) or requested.copied_from).topics
    copies = Parts(plan, found.writer, producer, found.digest_by, dict(of_topics), _noted(decision))
    report = found.attempt.write(parts_of(plan, copies, ranges))
    report = reported(report, requested.copied_from, ranges, copies.unknown)
    if plan.transform is not None:
        return report
    return replace(report, bytes=producer.bytes_written(besides=plan.aside))


def _noted(decision: Decision | None) -> Noted | None:
    """What `ByRange.unknown` was of each range that is lost; None where nothing is decided."""
    if decision is None:
        return None
    return {range_: ids for w in decision.lost for range_, ids in noted_of(w).items()}


class Parts:
    """What a task writes, range by range. ``ids``: of the topics, as they were when the micro-batch was planned.
    ``noted``: of a decided micro-batch, the schema ids that were unknown in each range. ``unknown``: those that are, by
    the ranges so far, where there are any."""

    def __init__(
        self,
        plan: CopyPlan,
        writer: RowWriter,
        producer: ArrowProducer,
        digest_by: Digest,
        ids: dict[str, str],
        noted: Noted | None = None,
    ) -> None:
        self.unknown: dict[OffsetRange, tuple[str, ...]] = {}
        self._noted = noted
        self.producer, self.ids = producer, ids
        self._plan, self.writer, self._digest_by = plan, writer, digest_by
        client = broker_client(plan.source.kafka)
        self._fetching = Fetching.from_options(client, plan.source)
        self._readable = ReadableRanges(client, plan.source, plan.cluster, ids)

    def of(self, ranges: Iterable[OffsetRange]) -> Iterator[Part]:
        """The rows of every range, in order."""
        transform = self._plan.transform
        for range_ in self.readable(ranges):
            if transform is None:
                yield part_of(range_, self.copied(range_))
            else:
                yield from self._transformed(range_, transform)

    def readable(self, ranges: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
        """See `ReadableRanges.of`."""
        return self._readable.of(ranges)

    def copied(self, range_: OffsetRange) -> Copied:
        """Hand the range's records to the producer as they are. Raises TopicError (EOS_ROWS_EXPIRED)."""
        topic = self._plan.target(range_.topic)
        self.writer.look_up([topic])
        target, producer = (topic, range_.partition), self.producer
        copied = copy_range(self._fetching, range_, target, producer)
        check_age(self.writer.client, topic, copied.oldest_dated_ms)
        return copied

    def _transformed(self, range_: OffsetRange, transform: Transform) -> Iterator[Part]:
        """The rows that the transform makes of each chunk, and behind them the dead letters, or how many records are
        dropped."""
        sink = self._plan.sink
        function = transform.function
        if isinstance(function, ByRange):
            noted = None if self._noted is None else self._noted.get(range_, ())
            function = function.for_range(noted)
            transform = replace(transform, function=function)
        for chunk in chunks(read_range(self._fetching, range_)):
            done = transformed(transform, chunk)
            if isinstance(function, ByRange):
                self._note_unknown(range_, function.unknown)
            letters = self._letters(chunk, transform, done.rejected)
            rows, count = done.rows, done.rows.num_rows
            places = chunk.places(range_, count + letters.num_rows)
            if count:
                part = self.writer.write(RowBatch(rows, transform.columns, sink.topic, places[:count]), self._digest_by)
                yield replace(part, bytes=size_of(rows))
            if letters.num_rows:
                batch = RowBatch(letters, LETTER_COLUMNS, sink.dead_letters, places[count:])
                part = self.writer.write(batch, self._digest_by)
                yield replace(part, bytes=size_of(letters), letters=letters.num_rows)
            dropped = len(done.rejected) if transform.on_malformed == "drop" else 0
            yield Part(0, 0, read=chunk.rows.num_rows, dropped=dropped)

    def _note_unknown(self, range_: OffsetRange, ids: tuple[str, ...]) -> None:
        """Raises RegistryError where a decision cannot note as many."""
        if ids:
            self.unknown[range_] = ids
            check_unknown(sum(map(len, self.unknown.values())))

    def _letters(self, chunk: Chunk, transform: Transform, rejected: Mapping[int, str]) -> pa.RecordBatch:
        """What is to be written of the records that the transform has rejected. Raises RowError where there may be
        none."""
        if transform.on_malformed == "deadLetters":
            return letters_of(chunk, rejected, self._plan.cluster)
        if rejected and transform.on_malformed == "fail":
            raise rejection(chunk.rows, rejected)
        return letters_of(chunk, {}, self._plan.cluster)


def part_of(range_: OffsetRange, copied: Copied) -> Part:
    """What was copied of a range."""
    digest = of_place(copied.digest, range_.topic, range_.partition, range_.start)
    return Part(copied.rows, digest, copied.oldest_ms, read=copied.rows)


#: What a task writes into its transaction, of these ranges.
PartsOf = Callable[[CopyPlan, Parts, Iterable[OffsetRange]], Iterator[Part]]
