"""One attempt of one task: write its rows into a transaction of its own, and hand that over, open."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from spark_eos import failpoints
from spark_eos.errors import ProtocolStop, Unclear
from spark_eos.kafka.admin.topics import topic_partitions
from spark_eos.kafka.requests.end_txn import END_TXN_VERSION
from spark_eos.log import logger
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.head import DEFAULT_PARTITIONER, DIGEST_BITS, Head, Pair, Probe, Written
from spark_eos.protocol.run import open_run
from spark_eos.protocol.task import Assignment, TaskReport, assign, check_held, check_owner, free_name
from spark_eos.retry import retrying
from spark_eos.sink.preflight import Facts
from spark_eos.sink.producers import TaskProducer, begin
from spark_eos.sink.rows import RowBatch, check_partitions
from spark_eos.sink.schema import Columns
from spark_eos.sink.session import Session, session

OPEN_S = 3.0
"""How long a task waits for the one before it to open the run; the wait grows with the partition."""

_SPARK_PROPERTIES = ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")


@dataclass(frozen=True)
class Identity:
    """Which attempt of which task of which micro-batch this is."""

    query: str
    run: str
    batch: int
    partition: int
    attempt: int

    @classmethod
    def here(cls) -> Identity:
        context = TaskContext.get()
        query, run, batch = (context.getLocalProperty(name) if context else None for name in _SPARK_PROPERTIES)
        if context is None or query is None or run is None or batch is None:
            raise ProtocolStop(
                "EOS_NOT_A_STREAMING_TASK",
                "The sink runs outside of a task of a streaming query.",
                hint='Use it by df.writeStream.format("eos-kafka").',
            )
        return cls(
            query=query,
            run=run,
            batch=int(batch),
            partition=context.partitionId(),
            attempt=context.attemptNumber(),
        )


@dataclass(frozen=True)
class Job:
    """What all tasks of a query share."""

    options: SinkOptions
    facts: Facts
    columns: Columns


def run_task(job: Job, me: Identity, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    """Write, or count, the rows of one task; the report for the driver.

    The head, the opening of the run and the producer's birth overlap the wait for the first rows. Whatever fails aborts
    this attempt's own transaction and raises.
    """
    own = session(job.options, job.facts.ledger_partitions, me.query)
    with ThreadPoolExecutor(1, "eos start") as pool:
        start = pool.submit(_start, job, own, me)
        first = next((batch for batch in batches if batch.num_rows), None)
        assignment, producer = start.result()
    rows = iter(()) if first is None else _chain(first, batches)
    if producer is None:
        return _count(job, assignment, me, rows)
    if first is None:
        producer.close()
        return TaskReport(assignment.work, me.partition, 0, 0, digest_by=assignment.digest_by)
    attempt = _Attempt(job, own, me, assignment, producer)
    try:
        return attempt.write(rows)
    except BaseException:
        producer.abort()
        raise
    finally:
        producer.close()


def _chain(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from (batch for batch in rest if batch.num_rows)


def _start(job: Job, own: Session, me: Identity) -> tuple[Assignment, TaskProducer | None]:
    head = _opened(job, own, me)
    assignment = assign(head, me.batch, me.partition, me.attempt, partitioner=job.options.partitioner)
    if assignment.name is None:
        return assignment, None
    producer = begin(
        job.options.kafka,
        free_name(job.options.prefix, me.query, assignment.name, head, own.coordinator),
        job.facts.transaction_timeout_ms,
        topic=job.options.topic,
        partitioner=assignment.partitioner,
        two_phase=job.options.two_phase,
    )
    return assignment, producer


def _opened(job: Job, own: Session, me: Identity) -> Head:
    """The head of this run. The lowest partition opens it, the others wait for that, though not for ever."""
    head = None
    for _ in retrying(OPEN_S * me.partition):
        head = own.ports.ledger.read()
        if head is not None and head.run == me.run:
            return head
        if me.partition == 0:
            break
    if head is not None:
        _warn(job.options, me, head)
    return open_run(
        own.ports,
        me.run,
        me.batch,
        endtxn_version=END_TXN_VERSION,
        begin_at=job.options.ledger_begin,
        driver=job.facts.driver,
        prefix=job.options.prefix,
        partitioner=job.options.partitioner or DEFAULT_PARTITIONER,
        two_phase=job.options.two_phase,
    )


def _warn(options: SinkOptions, me: Identity, head: Head) -> None:
    """Of an option that does harm to a query which has a head."""
    if options.partitioner not in (None, head.partitioner):
        logger.warning(
            "query=%s began with the partitioner '%s', and 'kafka.partitioner' is '%s' now: rows of a key go to "
            "another partition.",
            me.query,
            head.partitioner,
            options.partitioner,
        )


def _count(job: Job, assignment: Assignment, me: Identity, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    rows = digest = 0
    for batch in batches:
        columns = RowBatch(batch, job.columns, job.options.topic)
        rows += columns.rows
        digest += columns.digest(assignment.digest_by)
    digest %= 1 << DIGEST_BITS
    return TaskReport(assignment.work, me.partition, rows, digest, digest_by=assignment.digest_by)


class _Attempt:
    """The rows' way into one transaction."""

    def __init__(self, job: Job, own: Session, me: Identity, assignment: Assignment, producer: TaskProducer) -> None:
        self._job, self._own, self._me = job, own, me
        self._assignment, self._producer = assignment, producer
        self._counts: dict[str, int] = {}
        self._oldest_ms: int | None = None

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        began_ms = int(time.time() * 1000)
        failpoints.reach("prepare.begun")
        rows = digest = 0
        for batch in batches:
            columns = RowBatch(batch, self._job.columns, self._job.options.topic)
            self._check_topics(columns)
            check_partitions(columns, self._job.options.topic, self._counts)
            self._producer.write(columns, self._counts)
            rows += columns.rows
            digest += columns.digest(self._assignment.digest_by)
            self._note_age(columns.oldest_ms)
            failpoints.reach("prepare.wrote")
        self._producer.flush()
        failpoints.reach("prepare.flushed")
        self._check_owner()
        written = self._hand_over(rows, digest % (1 << DIGEST_BITS))
        failpoints.reach("prepare.prepared")
        return TaskReport(
            self._assignment.work,
            self._me.partition,
            written.rows,
            written.digest,
            written,
            began_ms,
            self._job.facts.transaction_timeout_ms,
            self._assignment.digest_by,
            self._oldest_ms,
        )

    def _note_age(self, oldest_ms: int | None) -> None:
        known = [age for age in (self._oldest_ms, oldest_ms) if age is not None]
        self._oldest_ms = min(known, default=None)

    def _check_topics(self, columns: RowBatch) -> None:
        """Topics must exist before a row is written: the client would wait for them, or create what was misspelt."""
        topics = [self._job.options.topic] if columns.topics is None else columns.topics
        unknown = set(topics) - self._counts.keys()
        if unknown:
            self._counts |= topic_partitions(self._job.options.kafka, sorted(filter(None, unknown)))

    def _check_owner(self) -> None:
        check_owner(self._own.ports.ledger.read(), self._me.run, self._me.batch, self._assignment.work)

    def _hand_over(self, rows: int, digest: int) -> Written:
        """What the broker holds must be what this producer wrote."""
        own = self._producer.identity()
        described = self._own.coordinator.describe([own.id]).get(own.id)
        check_held(own, described, two_phase=self._job.options.two_phase)
        assert described is not None
        probe = self._first_record(own, described.places)
        return Written(self._me.partition, own, rows, digest, probe, endtxn_version=END_TXN_VERSION)

    def _first_record(self, own: Pair, places: Iterable[tuple[str, int]]) -> Probe:
        for _ in retrying(10):
            probe = self._own.coordinator.first_record(own, places)
            if probe is not None:
                return probe
        raise Unclear(
            "EOS_TRANSACTION_NOT_FOUND",
            f"No leader of {places} knows the open transaction {own.id}.",
            hint="Nothing was decided; Spark tries the task again.",
        )
