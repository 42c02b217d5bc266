"""Spark's own events about its queries."""

from __future__ import annotations

import threading
import time
from datetime import datetime

from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from spark_eos.checkpoint.offset_log import marks_of
from spark_eos.ops.metrics.hub import Hub
from spark_eos.spark.reasons import reason

#: The condition of errors that have none of this library.
_OTHER = "OTHER"


class QueryListener(StreamingQueryListener):
    """Passes Spark's events to the hub: started, progress, terminated."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._running: set[str] = set()
        self._changed = threading.Condition()

    def wait(self, timeout_s: float) -> None:
        """Wait until every query has ended, for at most ``timeout_s``."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout_s)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        with self._changed:
            self._running.add(str(event.runId))
        self._tell("started", query=str(event.id), run=str(event.runId), name=event.name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        self._tell(
            "progress",
            query=str(progress.id),
            run=str(progress.runId),
            name=progress.name,
            batch=progress.batchId,
            rows_in=progress.numInputRows,
            began=datetime.fromisoformat(progress.timestamp).timestamp(),
            batch_s=progress.batchDuration / 1000,
            ran="addBatch" in progress.durationMs,
            sources=_sources(progress),
        )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Count nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._tell("terminated", query=str(event.id), run=str(event.runId), condition=_condition(event.exception))
        with self._changed:
            self._running.discard(str(event.runId))
            self._changed.notify_all()

    def _tell(self, event: str, **values: object) -> None:
        self._hub.take({"event": event, "at": time.time(), **values})


def _condition(exception: str | None) -> str | None:
    """Return the condition of the error that has ended a query; None without an error."""
    if exception is None:
        return None
    error = reason(RuntimeError(exception))
    return _OTHER if error is None else error.condition


def _sources(progress: StreamingQueryProgress) -> list[str]:
    """Return the names of this library's sources in a progress event (`spark_eos.source.reader`)."""
    return [name for source in progress.sources if (name := marks_of(source.latestOffset).get("source"))]
