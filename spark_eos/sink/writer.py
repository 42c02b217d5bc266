"""The sink's writer, which Spark calls in tasks and on the driver.

Spark makes a new writer for each call: one on the driver when it plans a micro-batch, which goes to the tasks, and one
for each commit or abort. They share messages and the process's caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from spark_eos.base.log import logger
from spark_eos.base.metrics_events import NOWHERE, Events
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.kafka.admin.topics import topic_partitions
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.options.parse import SinkOptions
from spark_eos.sink.commit import Ending, all_received
from spark_eos.sink.job import Identity, Message, RowSource, SinkJob
from spark_eos.sink.preflight import this_driver
from spark_eos.sink.session import session_for
from spark_eos.spark.tracebacks import hidden_traceback


def stream_writer(options: SinkOptions, rows: RowSource, events: Events, *, was_sent: bool) -> EosKafkaStreamWriter:
    """Return the writer of a micro-batch, which checks the cluster before it goes to tasks. ``was_sent``: it is for a
    commit or an abort, in a process to which Spark has sent the data source. Raises EosError."""
    writer = EosKafkaStreamWriter(options, rows, events)
    if not was_sent:
        writer.plan()
    return writer


class EosKafkaStreamWriter(DataSourceStreamArrowWriter):
    """See DataSourceStreamArrowWriter. ``rows``: where the rows come from. ``events``: the receiver of commits'
    events."""

    def __init__(self, options: SinkOptions, rows: RowSource, events: Events = NOWHERE) -> None:
        self._options, self._rows, self._events = options, rows, events
        self._job: SinkJob | None = None

    @property
    def _client(self) -> BrokerClient:
        """This process's client; the writer itself travels to tasks, and has none."""
        return broker_client(self._options.kafka)

    def plan(self) -> None:
        """Check the cluster, before the writer goes to the tasks. The writers for commit and abort have the facts from
        the tasks' messages. Raises EosError."""
        self._job = SinkJob.plan(self._client, self._options, self._rows)

    @hidden_traceback()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """Write a task's rows into a transaction of this attempt's own, and leave it open for `commit`. If anything
        fails, that transaction is aborted."""
        assert self._job is not None, "the writer was not made by Spark's planning"
        return self._job.run(self._client, Identity.here(), iterator, count_bytes=bool(self._events))

    @hidden_traceback()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit on the driver: see `Ending.commit`."""
        received = all_received(messages, batchId, Message)
        first = received[0]
        self._ending(first.query, first.run, batchId, first.facts.ledger_partitions).commit(received)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the micro-batch. Never raises: the next start clears transactions that stay open."""
        try:
            first = next((message for message in messages if isinstance(message, Message)), None)
            own = (first.query, first.run, first.facts.ledger_partitions) if first else self._own_run()
            if own is None:
                return
            query, run, partitions = own
            ending = self._ending(query, run, batchId, partitions)
            left = ending.abort()
            logger.warning("query=%s batch=%d aborted, %d transactions left open", query, batchId, left)
            ending.tell_aborted(messages, left)
        except Exception as error:
            logger.warning("batch=%d could not be aborted: %s", batchId, error)

    def _ending(self, query: str, run: str, batch: int, ledger_partitions: int) -> Ending:
        name = f"query={query} batch={batch}"
        return Ending(
            self._client, self._options, ledger_partitions, query, run, batch, name, self._rows, events=self._events
        )

    def _own_run(self) -> tuple[str, str, int] | None:
        """Return query, run and number of ledger partitions where no task has ended, as when a query is stopped.

        The checkpoint names the query, and the ledger its run. That is the run of this abort only if it belongs to this
        Spark application, which never has two runs of a query at once; else nothing is touched.
        """
        if not self._options.checkpoint_location:
            return None
        query = Checkpoint(self._options.checkpoint_location, self._options.storage).query_id()
        if query is None:
            return None
        topic = self._options.ledger_topic
        partitions = topic_partitions(self._client, [topic])[topic]
        session = session_for(self._client, self._options, partitions, query)
        session.stop_background_work()
        head = session.ports.ledger.read()
        driver = this_driver()
        return (query, head.run, partitions) if head is not None and driver and head.driver == driver else None
