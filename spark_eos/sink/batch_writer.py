"""The writer of ``df.write``: a batch job's output as one micro-batch, by the protocol of streams.

Spark makes one writer for a write, and sends it to the tasks and to the process that commits or aborts.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_eos.errors import EosError, Superseded, stop
from spark_eos.log import logger
from spark_eos.metrics_events import NOWHERE, Events
from spark_eos.options.parse import SinkOptions
from spark_eos.options.writes import Each, WriteOptions
from spark_eos.protocol.abort import abort, clear_late
from spark_eos.protocol.checks import check_halts
from spark_eos.protocol.commit import BATCH, commit, complete
from spark_eos.protocol.head import EachSink, Notes
from spark_eos.protocol.names import query_of_job, query_of_sink
from spark_eos.protocol.task import MicroBatch
from spark_eos.sink.messages import Message, all_received, dead_letters_of
from spark_eos.sink.planned import planned_ms, planned_now
from spark_eos.sink.preflight import preflight
from spark_eos.sink.schema import check_columns
from spark_eos.sink.session import session_for
from spark_eos.sink.telling import Sized, Telling
from spark_eos.spark.tracebacks import hidden_traceback
from spark_eos.spark.worker_exit import quiet_here
from spark_eos.spark.worker_gc import spare_collections

if TYPE_CHECKING:
    from spark_eos.sink.job import SinkJob

#: When an abort looks for what tasks have begun meanwhile that Spark is still killing, in seconds after the look before
#: (spark.python.task.killTimeout is 2 s).
_LATER_S = (1, 2)


class EosKafkaBatchWriter(DataSourceArrowWriter):
    """See DataSourceArrowWriter. Making one, on the driver, checks options, columns and the cluster. ``events``: who is
    told of commits."""

    def __init__(self, options: WriteOptions, schema: StructType, events: Events = NOWHERE) -> None:
        self._options, self._events = options.sink, events
        self._columns = check_columns(schema, options.sink.topic)
        self._each: Each | None = options.each
        self._generated = options.job_id is None
        self._job_id = options.job_id or str(uuid.uuid4())
        if self._each is None:
            self._query, self._run, self._batch = query_of_job(self._job_id), str(uuid.uuid4()), BATCH
        else:
            self._query = query_of_sink(self._each.query, self._each.sink)
            self._run, self._batch = self._each.run, self._each.batch
        with self._told():
            self._facts = preflight(self._options)
            if self._options.two_phase:
                from spark_eos.sink.two_phase import check_two_phase

                check_two_phase(self._options)
        spare_collections()
        self._planned = planned_now()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        quiet_here()

    @hidden_traceback()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """In a task: write the rows into a transaction of this attempt's own, and leave it open for `commit`. If
        anything fails, that transaction is aborted."""
        from spark_eos.sink.job import Identity, is_in_foreach_batch
        from spark_eos.sink.task import run_task

        if self._each is None and is_in_foreach_batch():
            raise _in_foreach_batch()
        began = time.perf_counter()
        context = TaskContext.get()
        assert context is not None
        identity = Identity(self._query, self._run, self._batch, context.partitionId(), context.attemptNumber())
        sized = Sized(iterator, count=bool(self._events))
        with self._told():
            report = run_task(self._job, identity, sized.batches)
        spare_collections()
        took_s = time.perf_counter() - began
        done = time.time()
        return Message(self._query, self._run, self._facts, report, took_s, done, sized.bytes, self._planned)

    @hidden_traceback()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: decide on the transactions of all tasks at once, and end them. Raises EosError."""
        from spark_eos.sink.job import Identity
        from spark_eos.sink.task import opened

        began = time.perf_counter()
        with self._told():
            received = all_received(messages, self._batch)
            session = session_for(self._options, self._facts.ledger_partitions, self._query)
            if not received:  # that nothing was to be written has to be known, too
                identity = Identity(self._query, self._run, self._batch, 0, 0)
                opened(self._job, session, identity)
            if self._each is not None:
                _check_query(self._options, self._facts.ledger_partitions, self._each.query, self._query, self._run)
            batch = MicroBatch(
                self._run,
                self._batch,
                tuple(message.report for message in received),
                partitioner=self._options.partitioner,
                two_phase=self._options.two_phase,
                in_foreach_batch=self._each is not None,
                notes=Notes.from_text(self._each.notes) if self._each and self._each.notes else None,
                planned_ms=planned_ms(session.ports, received),
            )
            self._telling.prepared(batch, received)
            try:
                report = commit(session.ports, batch, seen=session.seen())
                session.look_now(self._run, report, wait_for_others=self._each is None)
                if self._each is None:
                    complete(session.ports, self._run)
            except BaseException as error:
                self._telling.failed(batch, error)
                raise
        self._telling.committed(batch, received, report, time.perf_counter() - began)
        letters = dead_letters_of(batch.dead_letters)
        done = "was there already, nothing was written" if report.replayed else f"transactions={report.transactions}"
        logger.info("%s: rows=%d%s tasks=%d %s", self, batch.rows, letters, len(received), done)

    @property
    def _telling(self) -> Telling:
        query, sink = (None, None) if self._each is None else (self._each.query, self._each.sink)
        return Telling(self._events, query, self._query, self._options.prefix, sink)

    @property
    def _job(self) -> SinkJob:
        from spark_eos.sink.job import SinkJob

        if self._each is None:
            return SinkJob(self._options, self._facts, self._columns, self._job_id)
        return SinkJob(self._options, self._facts, self._columns, each=EachSink(self._each.query, self._each.sink))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Never raises: what stays open is cleared by the next run under the same id, or ends by its timeout."""
        try:
            session = session_for(self._options, self._facts.ledger_partitions, self._query)
            each = self._each is not None
            left = abort(session.ports, self._run, self._batch, in_foreach_batch=each)
            for seconds in _LATER_S:
                time.sleep(seconds)
                # a task may have opened the run since
                abort(session.ports, self._run, self._batch, in_foreach_batch=each)
                left = clear_late(session.ports)
            logger.warning("%s was aborted, %d transactions left open", self, len(left))
        except Exception as error:
            logger.warning("%s could not be aborted: %s", self, error)

    def __str__(self) -> str:
        if self._each is not None:
            return f"write of micro-batch {self._each.batch} to sink '{self._each.sink}'"
        return f"batch write with {'the generated ' if self._generated else ''}job.id '{self._job_id}'"

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors say which write it is, and those of a batch write what to do about it, as there is no checkpoint."""
        try:
            yield
        except EosError as error:
            raise self._of_this_write(error) from None

    def _of_this_write(self, error: EosError) -> EosError:
        name = f"{str(self)[0].upper()}{str(self)[1:]}"
        message = f"{name}: {error.message}"
        hint = error.hint
        if self._each is None:
            again = f"Run it again with option 'job.id' = {self._job_id}"
            if isinstance(error, Superseded):
                hint = f"Wait until the other run with the same job.id has ended. {again} if it fails."
            elif error.condition == "EOS_REPLAY_DIVERGED":
                return stop("EOS_JOB_DIFFERS.rows", name=name, differences=_differences(error), write=str(self))
            elif error.restart_helps:
                hint = f"{again}: it finds out what was written, and writes what is missing, nothing twice."
        return error.reworded(message, hint, **error.parameters | {"write": str(self)})


@lru_cache(maxsize=64)
def _check_query(options: SinkOptions, ledger_partitions: int, query: str, sink: str, run: str) -> None:
    """Raise Superseded if the query was replayed. Once a run, when the sink's head of the run is published: whoever
    replays the query marks it as a whole, and then looks for the heads of its sinks. So either this head was found by
    that, or the mark is found here."""
    check_halts(session_for(options, ledger_partitions, query).ports.ledger.read(), None)


def _differences(error: EosError) -> str:
    return error.message.partition(": ")[2].rstrip(".") or error.message


def _in_foreach_batch() -> EosError:
    return stop("EOS_USE_UNSUPPORTED.in_foreach_batch")
