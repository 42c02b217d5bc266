"""The sink's writer: what Spark calls, in tasks and on the driver.

Spark makes a new writer for each call: one on the driver when it plans a micro-batch, which goes to the tasks, and one
for each commit or abort. What they share lies in messages and in the process's caches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.clocks import Moment
from spark_eos.kafka.admin.topics import topic_partitions
from spark_eos.kafka.net.client import broker_client
from spark_eos.log import logger
from spark_eos.metrics_events import NOWHERE, Events
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.abort import abort
from spark_eos.protocol.commit import CommitReport, commit
from spark_eos.protocol.task import MicroBatch, TaskReport
from spark_eos.sink.messages import Message, all_received, dead_letters_of, written_by
from spark_eos.sink.planned import planned_ms, planned_now
from spark_eos.sink.preflight import Facts, preflight, this_driver
from spark_eos.sink.schema import Columns, check_columns
from spark_eos.sink.session import session_for
from spark_eos.sink.telling import Sized, Telling, aborted
from spark_eos.spark.tracebacks import hidden_traceback
from spark_eos.spark.worker_gc import spare_collections

if TYPE_CHECKING:
    from spark_eos.sink.job import Identity, SinkJob


class EosKafkaStreamWriter(DataSourceStreamArrowWriter):
    """See DataSourceStreamArrowWriter. Making one checks options and columns. ``events``: who is told of commits."""

    def __init__(self, options: SinkOptions, schema: StructType, events: Events = NOWHERE) -> None:
        self._options, self._events = options, events
        self._columns = self._check(schema)
        self._facts: Facts | None = None
        self._planned: Moment | None = None

    def _check(self, schema: StructType) -> Columns:
        return check_columns(schema, self._options.topic)

    def plan(self) -> None:
        """Look at the cluster, before the writer goes to the tasks. The writers for commit and abort have the facts
        from the tasks' messages."""
        self._facts = preflight(self._options)
        if self._options.two_phase:
            from spark_eos.sink.two_phase import check_two_phase

            check_two_phase(self._options)
        spare_collections()
        self._planned = planned_now()

    @hidden_traceback()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """In a task: write the rows into a transaction of this attempt's own, and leave it open for `commit`. If
        anything fails, that transaction is aborted."""
        from spark_eos.sink.job import Identity, SinkJob

        began = time.perf_counter()
        identity = Identity.here()
        assert self._facts is not None, "the writer was not made by Spark's planning"
        sized = Sized(iterator, count=bool(self._events))
        report = self._run(SinkJob(self._options, self._facts, self._columns), identity, sized.batches)
        spare_collections()
        took_s = time.perf_counter() - began
        size = report.bytes or sized.bytes
        return Message(identity.query, identity.run, self._facts, report, took_s, time.time(), size, self._planned)

    def _run(self, job: SinkJob, identity: Identity, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """What one task does."""
        from spark_eos.sink.task import run_task

        return run_task(job, identity, iterator)

    @hidden_traceback()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: decide on the transactions of all tasks and the input's offsets at once, and end them.

        Raises EosError; a replay of the micro-batch then finds out what was decided.
        """
        began = time.perf_counter()
        received = all_received(messages, batchId)
        if not received:
            return  # there was no task: nothing was read, nothing is to be written
        first = received[0]
        offsets = group = None
        if self._options.group_id and self._options.checkpoint_location:
            group = self._options.group_id
            offsets = Checkpoint(self._options.checkpoint_location, self._options.storage).kafka_offsets(batchId)
        session = session_for(self._options, first.facts.ledger_partitions, first.query)
        reports = tuple(message.report for message in received)
        batch = MicroBatch(
            first.run,
            batchId,
            reports,
            offsets,
            self._options.partitioner,
            group,
            self._options.two_phase,
            planned_ms=planned_ms(session.ports, received),
        )
        telling = Telling(self._events, first.query, first.query, self._options.prefix)
        telling.prepared(batch, received)
        try:
            ahead = session.resume(first.run)
            report = commit(session.ports, batch, ahead, session.seen())
        except BaseException as error:
            telling.failed(batch, error)
            raise
        session.rest(first.run, batchId, report)
        spare_collections()
        took_s = time.perf_counter() - began
        telling.committed(batch, received, report, took_s)
        self._report(first.query, batch, received, report, took_s)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Never raises: what stays open is cleared by the next start."""
        try:
            received = next((message for message in messages if isinstance(message, Message)), None)
            found = (received.query, received.run, received.facts.ledger_partitions) if received else self._own_run()
            if found is None:
                return
            query, run, partitions = found
            session = session_for(self._options, partitions, query)
            session.resume()
            left = abort(session.ports, run, batchId)
            logger.warning("query=%s batch=%d aborted, %d transactions left open", query, batchId, len(left))
            aborted(self._events, query, run, batchId, messages, len(left))
        except Exception as error:
            logger.warning("batch=%d could not be aborted: %s", batchId, error)

    def _own_run(self) -> tuple[str, str, int] | None:
        """Query, run and number of ledger partitions where no task has ended, as when a query is stopped.

        The checkpoint names the query, and the ledger its run. That is the run of this abort only if it belongs to this
        Spark application, which never has two runs of a query at once; else nothing is touched.
        """
        if not self._options.checkpoint_location:
            return None
        query = Checkpoint(self._options.checkpoint_location, self._options.storage).query_id()
        if query is None:
            return None
        topic = self._options.ledger_topic
        partitions = topic_partitions(broker_client(self._options.kafka), [topic])[topic]
        session = session_for(self._options, partitions, query)
        session.resume()
        head = session.ports.ledger.read()
        driver = this_driver()
        return (query, head.run, partitions) if head is not None and driver and head.driver == driver else None

    def _report(
        self, query: str, batch: MicroBatch, received: Sequence[Message], report: CommitReport, took_s: float
    ) -> None:
        """To the log."""
        logger.info(
            "query=%s batch=%d%s rows=%d%s%s tasks=%d transactions=%d prepare=%.0fms "
            "verify=%.1fms decide=%.1fms end=%.1fms commit=%.1fms since_last_task=%.1fms",
            query,
            batch.id,
            " replayed" if report.replayed else "",
            report.rows,
            dead_letters_of(batch.dead_letters),
            written_by(batch),
            len(batch.reports),
            report.transactions,
            max(message.took_s for message in received) * 1000,
            report.verify_ms,
            report.decide_ms,
            report.end_ms,
            took_s * 1000,
            (time.time() - max(message.done for message in received)) * 1000,
        )
        if report.still_open:
            logger.warning("query=%s %d leftover transactions stay open until their timeout", query, report.still_open)
