"""Events of a micro-batch's commit, for metrics (`spark_eos.base.metrics_events`). Times are seconds; ids are no
secrets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from spark_eos.base.metrics_events import Events
from spark_eos.errors import EosError, TransactionLost
from spark_eos.protocol.commit import CommitReport
from spark_eos.protocol.names import parse_task_name
from spark_eos.protocol.task import MicroBatch
from spark_eos.sink.job import Message


@dataclass(frozen=True)
class CommitEvents:
    """Reports on one micro-batch. ``query`` is Spark's id, None for a batch write; ``key`` stands for the query in
    transactional ids; ``sink`` names one of several within foreachBatch."""

    events: Events
    query: str | None
    key: str
    prefix: str
    sink: str | None = None

    @contextmanager
    def around(self, batch: MicroBatch, received: Sequence[Message]) -> Iterator[None]:
        """Emit an event when the commit begins, as every task has reported, and one if it raises."""
        if self.events:
            self.events.tell("prepared", **self._of(batch), **_of_tasks(received))
        try:
            yield
        except BaseException as error:
            self._failed(batch, error)
            raise

    def committed(self, batch: MicroBatch, received: Sequence[Message], report: CommitReport, took_s: float) -> None:
        """Emit the event of a finished commit."""
        if not self.events:
            return
        self.events.tell(
            "committed",
            **self._of(batch, report.rows),
            **_of_tasks(received),
            bytes=sum(message.bytes for message in received),
            dead_letters=batch.dead_letters,
            read=batch.read,
            dropped=batch.dropped,
            transactions=report.transactions,
            replayed=report.replayed,
            leftovers=report.leftovers,
            open=report.still_open,
            verify_s=report.verify_ms / 1000,
            decide_s=report.decide_ms / 1000,
            end_s=report.end_ms / 1000,
            commit_s=took_s,
        )

    def _failed(self, batch: MicroBatch, error: BaseException) -> None:
        if self.events:
            condition = error.condition if isinstance(error, EosError) else type(error).__name__
            lost = error.parameters["lost"] if isinstance(error, TransactionLost) else 0
            self.events.tell("failed", **self._of(batch), condition=condition, lost=lost)

    def _of(self, batch: MicroBatch, rows: int | None = None) -> dict[str, object]:
        """Return the fields of a micro-batch. ``rows``: their number, if it differs from the tasks' reports."""
        tasks = [parse_task_name(self.prefix, self.key, w.pair.id) for w in batch.written]
        generations = [task.generation for task in tasks if task is not None]
        return {
            "query": self.query,
            "sink": self.sink,
            "run": batch.run,
            "generation": max(generations, default=None),
            "batch": batch.id,
            "rows": batch.rows if rows is None else rows,
        }


def _of_tasks(received: Sequence[Message]) -> dict[str, object]:
    """Return times of the tasks. ``prepare_s``: of the slowest one; begin and end are by the clocks of their
    machines."""
    return {
        "tasks": len(received),
        "prepare_s": max((message.took_s for message in received), default=0.0),
        "prepare_began": min((message.done - message.took_s for message in received), default=time.time()),
        "prepare_ended": max((message.done for message in received), default=time.time()),
    }
