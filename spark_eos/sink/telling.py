"""Events of micro-batches in the sink, for metrics (`spark_eos.metrics_events`). Times are in seconds; no secrets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.errors import EosError, TransactionLost, Unclear
from spark_eos.metrics_events import Events
from spark_eos.protocol.commit import CommitReport
from spark_eos.protocol.names import parse_task_name
from spark_eos.protocol.task import MicroBatch
from spark_eos.sink.messages import Message


class Sized:
    """Arrow batches on their way to a task, and how many bytes of keys and values have passed."""

    def __init__(self, batches: Iterator[pa.RecordBatch], *, count: bool) -> None:
        self.bytes = 0
        self.batches = self._counted(batches) if count else batches

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.bytes += size_of(batch)
            yield batch


def size_of(rows: pa.RecordBatch) -> int:
    """Bytes of the keys and values of rows."""
    columns = [rows.column(name) for name in ("key", "value") if name in rows.schema.names]
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns)


@dataclass(frozen=True)
class Telling:
    """One micro-batch that is to be committed. ``query`` is Spark's id, None for a batch write; ``key`` stands for the
    query in transactional ids; ``sink`` names one of several within foreachBatch."""

    events: Events
    query: str | None
    key: str
    prefix: str
    sink: str | None = None

    def prepared(self, batch: MicroBatch, received: Sequence[Message]) -> None:
        """Every task has reported, and the commit begins."""
        if self.events:
            self.events.tell("prepared", **self._what(batch), **_tasks(received))

    def committed(self, batch: MicroBatch, received: Sequence[Message], report: CommitReport, took_s: float) -> None:
        """The commit has returned."""
        if not self.events:
            return
        self.events.tell(
            "committed",
            **self._what(batch, report.rows),
            **_tasks(received),
            bytes=sum(message.bytes for message in received),
            dead_letters=batch.dead_letters,
            transactions=report.transactions,
            replayed=report.replayed,
            leftovers=report.leftovers,
            open=report.still_open,
            verify_s=report.verify_ms / 1000,
            decide_s=report.decide_ms / 1000,
            end_s=report.end_ms / 1000,
            commit_s=took_s,
        )

    def failed(self, batch: MicroBatch, error: BaseException) -> None:
        """The commit has raised; ``decided``: whether the micro-batch is, or may be, decided all the same."""
        if self.events:
            known = error.condition if isinstance(error, EosError) else type(error).__name__
            lost = error.parameters["lost"] if isinstance(error, TransactionLost) else 0
            decided = isinstance(error, TransactionLost | Unclear)
            self.events.tell("failed", **self._what(batch), condition=known, decided=decided, lost=lost)

    def _what(self, batch: MicroBatch, rows: int | None = None) -> dict[str, object]:
        """``rows``: where they are not those that the tasks have reported."""
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


def aborted(events: Events, query: str, run: str, batch: int, received: Sequence[object], left: int) -> None:
    """A micro-batch was given up. ``left``: transactions that stay open for now."""
    if events:
        reports = [message.report for message in received if isinstance(message, Message)]
        held = sum(report.written is not None for report in reports)
        events.tell("aborted", query=query, sink=None, run=run, batch=batch, transactions=held, open=left)


def _tasks(received: Sequence[Message]) -> dict[str, object]:
    """``prepare_s`` is that of the slowest task; begin and end are by the clocks of the tasks' machines."""
    return {
        "tasks": len(received),
        "prepare_s": max((message.took_s for message in received), default=0.0),
        "prepare_began": min((message.done - message.took_s for message in received), default=time.time()),
        "prepare_ended": max((message.done for message in received), default=time.time()),
    }
