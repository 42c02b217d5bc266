"""The writer of ``df.write``, by the protocol of streams: a batch job's output, or a write within foreachBatch, as one
micro-batch.

Spark makes one writer for a write, and sends it to the tasks and to the process that commits or aborts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_eos.base.caches import process_cache
from spark_eos.base.log import logger
from spark_eos.base.metrics_events import NOWHERE, Events
from spark_eos.errors import ConnectionFailed, EosError, Superseded, Unauthorized, stop
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.options.parse import SinkOptions
from spark_eos.options.writes import WriteOptions
from spark_eos.protocol.checks import check_halts
from spark_eos.protocol.head import BatchWrite, ForeachBatchWrite, Write
from spark_eos.sink.commit import Ending, all_received
from spark_eos.sink.job import Identity, Message, RowSource, SinkJob, is_in_foreach_batch
from spark_eos.sink.session import session_for
from spark_eos.spark.tracebacks import hidden_traceback
from spark_eos.spark.worker_exit import quiet_here

#: Seconds between the looks of an abort for transactions of tasks that Spark is still killing
#: (spark.python.task.killTimeout is 2 s).
_LATER_S = (1, 2)


class EosKafkaBatchWriter(DataSourceArrowWriter):
    """See DataSourceArrowWriter. Making one, on the driver, checks the cluster. ``rows``: where the rows come from.
    ``events``: the receiver of commits' events."""

    def __init__(self, options: WriteOptions, rows: RowSource, events: Events = NOWHERE) -> None:
        self._options, self._events = options.sink, events
        self._generated = options.write is None
        self._write: Write = options.write or BatchWrite(str(uuid.uuid4()), options.sink.topic)
        # Spark pickles the writer for the tasks and again for commit or abort: all of these are one run.
        self._run, self._batch = options.run or str(uuid.uuid4()), options.batch
        with self._naming_itself():
            self._job = SinkJob.plan(self._client, self._options, rows, self._write)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        quiet_here()

    @property
    def _client(self) -> BrokerClient:
        """This process's client; the writer itself travels to tasks, and has none."""
        return broker_client(self._options.kafka)

    @hidden_traceback()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """Write a task's rows into a transaction of this attempt's own, and leave it open for `commit`. If anything
        fails, that transaction is aborted."""
        if isinstance(self._write, BatchWrite) and is_in_foreach_batch():
            raise stop("EOS_USE_UNSUPPORTED.in_foreach_batch")
        context = TaskContext.get()
        assert context is not None
        identity = self._identity(context.partitionId(), context.attemptNumber())
        with self._naming_itself():
            return self._job.run(self._client, identity, iterator, count_bytes=bool(self._events))

    @hidden_traceback()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit on the driver: see `Ending.commit`."""
        with self._naming_itself():
            received = all_received(messages, self._batch, Message)
            if isinstance(self._write, ForeachBatchWrite):
                _check_query(self._client, self._options, self._job.facts.ledger_partitions, self._write, self._run)
            self._ending().commit(received)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the write. Never raises: the next run under the same id clears transactions that stay open, or their
        timeout ends them."""
        try:
            left = self._ending().abort(_LATER_S)
            logger.warning("%s was aborted, %d transactions left open", self, left)
        except Exception as error:
            logger.warning("%s could not be aborted: %s", self, error)

    def _identity(self, partition: int, attempt: int) -> Identity:
        return Identity(self._write.query_id, self._run, self._batch, partition, attempt)

    def _ending(self) -> Ending:
        return Ending(
            self._client,
            self._options,
            self._job.facts.ledger_partitions,
            self._write.query_id,
            self._run,
            self._batch,
            f"{self}:",
            self._job.rows,
            self._write,
            events=self._events,
        )

    def __str__(self) -> str:
        if isinstance(self._write, ForeachBatchWrite):
            return f"write of micro-batch {self._batch} to sink '{self._write.sink}'"
        return f"batch write with {'the generated ' if self._generated else ''}job.id '{self._write.job_id}'"

    @contextmanager
    def _naming_itself(self) -> Iterator[None]:
        """Name the write in errors; for a batch write, which has no checkpoint, also add the next step to them."""
        try:
            yield
        except EosError as error:
            raise self._of_this_write(error) from None

    def _of_this_write(self, error: EosError) -> EosError:
        name = f"{str(self)[0].upper()}{str(self)[1:]}"
        message = f"{name}: {error.message}"
        hint = error.hint
        if isinstance(self._write, BatchWrite):
            again = f"Run it again with option 'job.id' = {self._write.job_id}"
            if isinstance(error, Superseded):
                hint = f"Wait until the other run with the same job.id has ended. {again} if it fails."
            elif error.condition == "EOS_REPLAY_DIVERGED":
                return stop("EOS_JOB_DIFFERS", name=name, differences=_differences(error), write=str(self))
            elif error.restart_helps or isinstance(error, ConnectionFailed | Unauthorized):  # also after the decision
                first = "" if error.restart_helps else f"{hint} "
                hint = f"{first}{again}: it finds out what was written, and writes what is missing, nothing twice."
        return error.reworded(message, hint, **error.parameters | {"write": str(self)})


@process_cache(maxsize=64)
def _check_query(
    client: BrokerClient, options: SinkOptions, ledger_partitions: int, write: ForeachBatchWrite, run: str
) -> None:
    """Raise Superseded if the query was replayed. Checked once in a run, when the sink's head of the run is published:
    a replay marks the query as a whole, and then lists the heads of its sinks. So either the replay has listed this
    head, or this reads the mark."""
    check_halts(session_for(client, options, ledger_partitions, write.query).ports.ledger.read(), None)


def _differences(error: EosError) -> str:
    return error.message.partition(": ")[2].rstrip(".") or error.message
