"""One attempt of one task: write its rows into a transaction of its own, and hand that over, open."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from spark_eos.base.log import logger
from spark_eos.base.retry import retrying
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.partitioners import DEFAULT_PARTITIONER
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.producer.refusals import DeadLetterTopic
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.checks import superseded
from spark_eos.protocol.head import DIGEST_BITS, NOBODY, BatchWrite, Digest, Head
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.protocol.task import Assignment, TaskReport, assign, check_owner, check_target, check_time, free_name
from spark_eos.sink.attempt import Attempt, RowWriter, WriteStats
from spark_eos.sink.job import Identity, SinkJob
from spark_eos.sink.rows import RowBatch
from spark_eos.sink.session import Session, session_for

#: How long a task waits for the one before it to open the run; the wait grows with the partition.
OPEN_S = 3.0


def run_task(task: Task, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    """Write, or count, the rows of one task; return the report for the driver.

    The head, the opening of the run and the start of the producer overlap the wait for the first rows. Any failure
    aborts this attempt's own transaction and raises.
    """
    job, identity = task.job, task.identity
    waited = threading.Event()
    with ThreadPoolExecutor(1, "eos start") as pool:
        start = pool.submit(_start, task, waited)
        try:
            first = next((batch for batch in batches if batch.num_rows), None)
        finally:
            waited.set()
        assignment, attempt = start.result()
    rows = iter(()) if first is None else _chain(first, batches)
    if attempt is None:
        return _count(job, assignment, identity, rows)
    if first is None:
        attempt.writer.producer.close()
        return task.without_rows(assignment)
    return attempt.write(_written_stats(job, attempt.writer, rows))


@dataclass(frozen=True)
class Task:
    """An attempt of a task up to its first row, from which `Attempt` goes on: opens the run, if no other task has, and
    starts a producer."""

    job: SinkJob
    identity: Identity
    session: Session

    @classmethod
    def for_job(cls, client: BrokerClient, job: SinkJob, identity: Identity) -> Task:
        """Return the task with the process's session for its query."""
        return cls(job, identity, session_for(client, job.options, job.facts.ledger_partitions, identity.query))

    def open(self) -> Head:
        """Return the head of this run. The lowest partition opens it, the others wait for that, though not for ever.

        A task that waits may belong to a run that has failed meanwhile, as tasks that Spark kills live on for some
        seconds. If another run has been opened since, that is the next start of the query, which this one must not
        replace. Raises Superseded then, and the errors of `open_run`.
        """
        identity, ledger = self.identity, self.session.ports.ledger
        head = before = None
        for look, _ in enumerate(retrying(OPEN_S * identity.partition)):
            head = ledger.read()
            if head is not None and head.run == identity.run:
                return head
            if look == 0:
                before = head
            if identity.partition == 0:
                break
        if head is not None:
            # Another run has opened the query while this task waited.
            if head.run not in (NOBODY, None if before is None else before.run):
                raise superseded(identity.run, head)
            _warn(self.job.options, identity, head)
        options = self.job.options
        new = NewRun(
            identity.run,
            identity.batch,
            begin_at=options.ledger_begin,
            driver=self.job.facts.driver,
            prefix=options.prefix,
            partitioner=options.partitioner or DEFAULT_PARTITIONER,
            two_phase=options.two_phase,
            write=self.job.write,
            topic=options.topic,
        )
        return open_run(self.session.ports, new)

    def assign(self, head: Head, digest_by: Digest = Digest.ROWS, repairs: bool | None = None) -> Assignment:
        """Return the work of this attempt. See `spark_eos.protocol.task.assign`."""
        identity, partitioner = self.identity, self.job.options.partitioner
        return assign(
            head,
            identity.batch,
            identity.partition,
            identity.attempt,
            digest_by=digest_by,
            partitioner=partitioner,
            repairs=repairs,
        )

    def without_rows(self, assignment: Assignment) -> TaskReport:
        """Return the report of a task that had nothing to write."""
        return TaskReport(assignment.work, self.identity.partition, 0, 0, digest_by=assignment.digest_by)

    def begin(self, head: Head, assignment: Assignment, aside: frozenset[str] = frozenset()) -> Attempt | None:
        """Return the attempt, whose producer has the assignment's name; None where nothing is to be written. ``aside``:
        see `Attempt`."""
        if assignment.name is None:
            return None
        options, facts = self.job.options, self.job.facts
        letters = options.dead_letters
        producer = ArrowProducer(
            self.session.client,
            free_name(options.prefix, self.identity.query, assignment.name, head, self.session.coordinator),
            facts.transaction_timeout_ms,
            partitioner=assignment.partitioner,
            two_phase=options.two_phase,
            dead_letters=None if letters is None else DeadLetterTopic(letters, facts.dead_letter_partitions),
        )
        producer.init()
        if self.job.write is not None:
            self._check_not_aborted(assignment, producer)
        writer = RowWriter(options, producer, assignment.digest_by)
        return Attempt(self, assignment, writer, aside)

    def _check_not_aborted(self, assignment: Assignment, producer: ArrowProducer) -> None:
        """Raise where this write, a batch's or within foreachBatch, was aborted meanwhile. Spark aborts while it still
        kills tasks, and perhaps nobody runs the write again: a transaction that began then would hold readers until its
        timeout. Either the run is closed already, which this reads, or the abort, which looks after that, lists the id
        of the producer."""
        identity = self.identity
        try:
            check_owner(self.session.ports.ledger.read(), identity.run, identity.batch, assignment.work)
        except BaseException:
            producer.close()
            raise


def _written_stats(job: SinkJob, writer: RowWriter, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStats]:
    """Give each batch to the producer, and yield its stats."""
    for batch in batches:
        yield writer.write(RowBatch(batch, job.columns, job.options.topic))


def _chain(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from (batch for batch in rest if batch.num_rows)


def _start(task: Task, waited: threading.Event) -> tuple[Assignment, Attempt | None]:
    """Begin the task's work. ``waited``: the first row is there, or there is none. Until then, there is time to look up
    the topic; after that, the writer does it with the first rows."""
    head = task.open()
    _check_batch_write(task.job, head)
    assignment = task.assign(head)
    attempt = task.begin(head, assignment)
    if attempt is None:
        return assignment, None
    try:
        if not waited.is_set():
            attempt.writer.ask_ahead()
    except BaseException:
        attempt.writer.producer.close()
        raise
    return assignment, attempt


def _check_batch_write(job: SinkJob, head: Head) -> None:
    """Refuse a batch write whose earlier run wrote to another topic, or whose transactions may have expired."""
    if not isinstance(job.write, BatchWrite):
        return
    check_target(head, job.write)
    if not job.options.two_phase:
        check_time(head, job.facts.transaction_timeout_ms, int(time.time() * 1000))


def _warn(options: SinkOptions, identity: Identity, head: Head) -> None:
    """Warn of an option that does harm to a query which has a head."""
    if options.partitioner not in (None, head.partitioner):
        logger.warning(
            "query=%s began with the partitioner '%s', and 'kafka.partitioner' is '%s' now: rows of a key go to "
            "another partition.",
            identity.query,
            head.partitioner,
            options.partitioner,
        )


def _count(job: SinkJob, assignment: Assignment, identity: Identity, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    rows = digest = 0
    for batch in batches:
        columns = RowBatch(batch, job.columns, job.options.topic)
        rows += columns.rows
        digest += columns.digest(assignment.digest_by)
    digest %= 1 << DIGEST_BITS
    return TaskReport(assignment.work, identity.partition, rows, digest, digest_by=assignment.digest_by)
