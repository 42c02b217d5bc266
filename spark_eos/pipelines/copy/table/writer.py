"""The writer of a query to a table, which Spark calls in tasks and on the driver."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from spark_eos.base import failpoints
from spark_eos.base.log import logger
from spark_eos.base.metrics_events import NOWHERE, Events
from spark_eos.pipelines.copy.table.plan import TablePlan
from spark_eos.pipelines.copy.table.task import TableMessage, write_files
from spark_eos.pipelines.tables.commit import Outcome
from spark_eos.pipelines.tables.micro_batch import RangeBatch
from spark_eos.sink.commit import all_received
from spark_eos.spark.worker_gc import spare_collections
from spark_eos.spi import Identity, hidden_traceback


def to_table(plan: TablePlan, events: Events, was_sent: bool) -> TableStreamWriter:
    """Return the writer, which for tasks has credentials that are valid now. ``was_sent``: it is for a commit or an
    abort. Raises TableError."""
    return TableStreamWriter(plan if was_sent else replace(plan, table=plan.table.for_tasks()), events)


class TableStreamWriter(DataSourceStreamArrowWriter):
    """See DataSourceStreamArrowWriter. Spark makes one for each call; they share the plan and the tasks' messages.
    ``events``: the receiver of commits' events."""

    def __init__(self, plan: TablePlan, events: Events = NOWHERE) -> None:
        self._plan, self._events = plan, events

    @hidden_traceback()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TableMessage:
        """Write the records of a task's ranges to files of this attempt's own, which no reader sees yet."""
        return write_files(self._plan, Identity.here(), iterator)

    @hidden_traceback()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit all files of the micro-batch together, on the driver. See
        `spark_eos.pipelines.tables.target.Target.commit`."""
        began = time.perf_counter()
        received = all_received(messages, batchId, TableMessage)
        failpoints.reach("table.entered")
        plan = self._plan
        batch = RangeBatch(received[0].query, batchId, tuple(r for message in received for r in message.ranges))
        files = [file for message in received for file in message.files]
        rows, size = sum(message.rows for message in received), sum(file.size_bytes for file in files)
        read = sum(message.read for message in received)
        dropped = sum(message.dropped for message in received)
        is_there = any(message.skipped for message in received)
        outcome = plan.table.commit(batch, files, rows, is_there=is_there)
        took_s = time.perf_counter() - began
        plan.written.note(batchId, rows, size, dropped)
        self._tell(received, batch, outcome, took_s, rows=rows, bytes=size, read=read, dropped=dropped)
        spare_collections()
        name, write_s = f"query={batch.query} batch={batchId}", max(message.took_s for message in received)
        logger.info(
            "%s%s rows=%d%s bytes=%d files=%d ranges=%d table=%s in %.1f s",
            name,
            " replayed" if outcome.again else "",
            rows,
            f" dropped={dropped}" if dropped else "",
            size,
            len(files),
            len(batch.ranges),
            plan.table.name,
            write_s + took_s,
        )
        logger.debug(
            "%s tasks=%d write=%.0fms commit=%.1fms tries=%d",
            name,
            len(received),
            write_s * 1000,
            took_s * 1000,
            outcome.tries,
        )

    def _tell(
        self,
        received: Sequence[TableMessage],
        batch: RangeBatch,
        outcome: Outcome,
        took_s: float,
        **figures: int,
    ) -> None:
        """Send the event of the commit, for metrics, with these ``figures`` among others. The table's commit is the
        decision; there are no transactions."""
        if not self._events:
            return
        none = dict.fromkeys(("dead_letters", "transactions", "leftovers", "open", "verify_s", "end_s"), 0)
        self._events.tell(
            "committed",
            **none,
            **figures,
            query=batch.query,
            sink=None,
            run=received[0].run,
            generation=None,
            batch=batch.number,
            replayed=outcome.again,
            tasks=len(received),
            prepare_s=max(message.took_s for message in received),
            prepare_began=min(message.done - message.took_s for message in received),
            prepare_ended=max(message.done for message in received),
            decide_s=took_s,
            commit_s=took_s,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Leave the files: Spark also calls this after a commit that may be in the table. Otherwise, no reader sees
        them."""
        left = sum(len(message.files) for message in messages if isinstance(message, TableMessage))
        logger.warning("batch=%d was not committed; %d files stay that no reader sees", batchId, left)
