"""The end of a micro-batch, on the driver: its commit, or its abort, for streams, copies and batch writes alike."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pyspark.sql.datasource import WriterCommitMessage

from spark_eos.base import system
from spark_eos.base.log import logger
from spark_eos.base.metrics_events import NOWHERE, Events
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.errors import stop
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.abort import abort, clear_late
from spark_eos.protocol.commit import CommitReport, commit, complete
from spark_eos.protocol.head import BatchWrite, ForeachBatchWrite, Write
from spark_eos.protocol.ports import Ports
from spark_eos.protocol.task import MicroBatch
from spark_eos.sink.commit_events import CommitEvents
from spark_eos.sink.job import Message, RowSource
from spark_eos.sink.session import Session, session_for
from spark_eos.spark.worker_gc import spare_collections

M = TypeVar("M", bound=WriterCommitMessage)


def all_received(messages: Sequence[WriterCommitMessage | None], batch: int, kind: type[M]) -> list[M]:
    """Return every task's message. There is one at least, as Spark runs a task even for a write without partitions
    (SPARK-23271): none at all does not mean that there was nothing to write. Raises ProtocolStop when one is missing,
    or all are: rows would be left out of the commit."""
    received = [message for message in messages if isinstance(message, kind)]
    if len(received) < len(messages) or not received:
        numbers = [str(n) for n, message in enumerate(messages) if not isinstance(message, kind)]
        silent = ", ".join(numbers) or "all of them"
        raise stop("EOS_TASK_SILENT", batch=batch, count=len(numbers), tasks=len(messages), silent=silent)
    return received


@dataclass(frozen=True)
class Ending:
    """One micro-batch that is to be committed or aborted.

    ``query``: the id by which the ledger knows the query. ``name``: of the micro-batch, for the log. ``rows``: where
    its rows came from. ``write``: of a batch, or within foreachBatch, where it is no streaming query.
    """

    client: BrokerClient
    options: SinkOptions
    ledger_partitions: int
    query: str
    run: str
    batch: int
    name: str
    rows: RowSource
    write: Write | None = None
    events: Events = field(default=NOWHERE, kw_only=True)

    def commit(self, received: Sequence[Message]) -> CommitReport:
        """Decide on the transactions of all tasks and the input's offsets at once, and end them.

        A stream goes on then, and the commit is verified in the background. Any other is verified here, as perhaps no
        commit follows it. Raises EosError; then the next run settles the decision, if there is one.
        """
        began = time.perf_counter()
        session = self._session()
        batch = self._micro_batch(received, session.ports)
        events = self._commit_events()
        with events.around(batch, received):
            ahead = session.stop_background_work(self.run)
            report = commit(session.ports, batch, ahead, session.verified(self.run))
            self._finish(session, report)
        spare_collections()
        took_s = time.perf_counter() - began
        events.committed(batch, received, report, took_s)
        self._log(batch, received, report, took_s)
        size = sum(one.bytes for one in batch.reports)
        self.rows.committed(self.batch, report.rows, size, batch.dropped, batch.read)
        return report

    def abort(self, look_again_s: Sequence[float] = ()) -> int:
        """Close the run, and abort its open and undecided transactions; returns how many stay open. ``look_again_s``:
        seconds to wait before each further look for transactions that tasks have begun meanwhile. Raises EosError."""
        session = self._session()
        session.stop_background_work()
        left = abort(session.ports, self.run, self.batch)
        for seconds in look_again_s:
            time.sleep(seconds)
            # A task may have opened the run since.
            abort(session.ports, self.run, self.batch)
            left = clear_late(session.ports)
        return len(left)

    def tell_aborted(self, received: Sequence[object], left: int) -> None:
        """Emit the event of a micro-batch that was given up. ``left``: transactions that stay open for now. Those of
        the last decision are not aborted: a commit that raised any error may have decided before. Raises EosError."""
        if not self.events:
            return
        pairs = {w.pair for message in received if isinstance(message, Message) and (w := message.report.written)}
        head = self._session().ports.ledger.read() if pairs else None
        if head is not None and head.decision is not None:
            pairs -= head.decision.pairs
        self.events.tell(
            "aborted", query=self.query, sink=None, run=self.run, batch=self.batch, transactions=len(pairs), open=left
        )

    def _session(self) -> Session:
        return session_for(self.client, self.options, self.ledger_partitions, self.query)

    def _micro_batch(self, received: Sequence[Message], ports: Ports) -> MicroBatch:
        """Make a micro-batch of the reports, with the offsets to publish beside it."""
        options, offsets = self.options, None
        group = options.group_id if options.checkpoint_location else None
        if group is not None and options.checkpoint_location:
            offsets = Checkpoint(options.checkpoint_location, options.storage).kafka_offsets(self.batch)
        return MicroBatch(
            self.run,
            self.batch,
            tuple(message.report for message in received),
            offsets,
            options.partitioner,
            group,
            options.two_phase,
            kind=self.rows.kind,
            planned_ms=_planned_ms(ports, received),
        )

    def _finish(self, session: Session, report: CommitReport) -> None:
        if self.write is None:
            session.start_background_work(self.run, self.batch, report)
            return
        is_last = isinstance(self.write, BatchWrite)  # within foreachBatch, more writes follow
        session.verify_now(self.run, report, wait_for_others=is_last)
        if is_last:
            complete(session.ports, self.run)

    def _commit_events(self) -> CommitEvents:
        query, sink = (self.query if self.write is None else None), None
        if isinstance(self.write, ForeachBatchWrite):
            query, sink = self.write.query, self.write.sink
        return CommitEvents(self.events, query, self.query, self.options.prefix, sink)

    def _log(self, batch: MicroBatch, received: Sequence[Message], report: CommitReport, took_s: float) -> None:
        extra = "" if batch.kind is None else batch.kind.described(batch.reports)
        prepare_s = max((message.took_s for message in received), default=0.0)
        logger.info(
            "%s%s rows=%d%s%s%s in %.1f s",
            self.name,
            " replayed" if report.replayed else "",
            report.rows,
            f" dead_letters={batch.dead_letters}" if batch.dead_letters else "",
            f" dropped={batch.dropped}" if batch.dropped else "",
            f" {extra}" if extra else "",
            prepare_s + took_s,
        )
        logger.debug(
            "%s tasks=%d transactions=%d prepare=%.0fms verify=%.1fms decide=%.1fms end=%.1fms commit=%.1fms "
            "since_last_task=%.1fms",
            self.name,
            len(batch.reports),
            report.transactions,
            prepare_s * 1000,
            report.verify_ms,
            report.decide_ms,
            report.end_ms,
            took_s * 1000,
            (time.time() - max((message.done for message in received), default=time.time())) * 1000,
        )
        if report.still_open:
            logger.warning("%s: %d leftover transactions stay open until their timeout", self.name, report.still_open)


def _planned_ms(ports: Ports, received: Sequence[Message]) -> int | None:
    """Return when the micro-batch was planned, by ``ports.elapsed_ms``: none of its tasks' transactions is older. None
    where a task does not know."""
    moments = [message.planned for message in received]
    ago = [0 if at is None else at.ago_ms(system.steady, system.time_of_day) for at in moments]
    return None if None in moments else ports.elapsed_ms() - max(ago, default=0)
