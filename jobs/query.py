"""Running a job's streaming query: a line per micro-batch, an orderly stop on signals, errors that people can read."""

from __future__ import annotations

import re
import signal
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery, StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from spark_eos import reason
from spark_eos.errors import EosError

#: The last line of a Python traceback inside the text of Spark's error: `package.Error: what is wrong`.
_PYTHON = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .+$", re.MULTILINE)
#: What follows it in the text of Spark's error is the query's plan, which may hold such texts as literals.
_PLAN = "=== Streaming Query ==="
_STOP_POLL_SECONDS = 0.5


class BatchLines(StreamingQueryListener):
    """Writes one line to stderr for each micro-batch."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if progress.numInputRows:
            seconds = progress.batchDuration / 1000
            say(f"batch {progress.batchId}: {progress.numInputRows:,} rows in, {seconds:.2f} s")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def say(line: str) -> None:
    """One line for people, on stderr; stdout is left to a job's results."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def batch_lines(spark: SparkSession) -> Iterator[None]:
    """A line on stderr for each micro-batch of any query that runs meanwhile."""
    listener = BatchLines()
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)


@contextmanager
def stop_signals(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT (Ctrl-C) set ``stop`` instead of ending the process.

    To be used after the session has started, which sets a handler of its own: one that fails the job under way.
    """

    def on_signal(number: int, frame: types.FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait(query: StreamingQuery, stop: threading.Event) -> None:
    """Return when the query has ended; stops it once ``stop`` is set. Raises what the query failed with."""
    while not query.awaitTermination(_STOP_POLL_SECONDS):  # type: ignore[arg-type]
        if stop.is_set():
            say("stopping: the micro-batch under way, if any, is given up and runs again at the next start")
            query.stop()
            return


def failure_text(error: BaseException, *, verbose: bool = False) -> str:
    """What to print for an error: ours if there is one inside, else Spark's first line. All of it with ``verbose``."""
    whole = str(error)
    if isinstance(error, EosError):
        return whole
    said = whole.partition(_PLAN)[0]
    found = reason(error)
    short = str(found) if found else _spark_text(error, said)
    return f"{short}\n\n{whole}" if verbose else short


def _spark_text(error: BaseException, said: str) -> str:
    if isinstance(error, Py4JNetworkError) or isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
        return "Spark's JVM has ended."
    python = _PYTHON.findall(said)
    if python:
        return f"{python[-1]} (--verbose shows all)"
    first = said.strip().partition("\n")[0]
    return f"{first} (--verbose shows all)"
