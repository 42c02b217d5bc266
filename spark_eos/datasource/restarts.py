"""Runs a streaming query, and starts it again when it fails with an error after which a restart helps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_eos.spark.reasons import Reason, reason

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress

_POLL_S = 0.5
_LONGEST_PAUSE_S = 300.0
_MOST_DOUBLINGS = 64


@dataclass(frozen=True)
class Restart:
    """A restart that is due: the ``attempt``-th of ``attempts``, after ``pause_s`` seconds, because of ``reason``."""

    reason: Reason
    attempt: int
    attempts: int
    pause_s: float

    def __str__(self) -> str:
        return f"restart {self.attempt} of {self.attempts} in {self.pause_s:g} s: {self.reason}"


def _log(restart: Restart) -> None:
    from spark_eos.base.log import logger  # which sets up a handler, where there is none yet

    logger.warning("%s", restart)


@dataclass
class WorkStart:
    """One start of some work that may be started again. ``query``: its id in the metrics; ``has_progressed`` returns
    whether this start has finished a micro-batch."""

    query: str = "unknown"
    has_progressed: Callable[[], bool] = lambda: False


def run(
    factory: Callable[[], StreamingQuery],
    *,
    attempts: int = 5,
    pause_s: float = 10.0,
    stop: Callable[[], bool] = lambda: False,
    on_restart: Callable[[Restart], None] = _log,
    explain: Callable[[BaseException], Reason | None] = reason,
) -> None:
    """Start the query, wait until it has ended, and start it again when it failed and a restart helps.

    ``factory`` builds and starts the query, everything in it anew: reader, views, static DataFrames, writer, with the
    same checkpoint. Spark's cache is emptied before it is called again. After the query's end, its last commit is
    checked once more (`spark_eos.sink.ended`); an error of that check counts as the query's own.

    After ``attempts`` restarts without a finished micro-batch in between, the query's error is raised. The pause
    before a restart begins with ``pause_s`` seconds, and doubles each time, up to five minutes. An error that
    `spark_eos.reason` does not know, or whose ``restart_helps`` is false, is raised at once. When ``stop()`` becomes
    true, the query is stopped and the call returns, as it does when the query ends by itself. ``on_restart`` is called
    with each restart before its pause; by default it logs it. ``explain`` returns why a query has failed, where it has
    other errors than those of spark-eos.
    """

    def start(begun: WorkStart) -> None:
        query = factory()
        begun.query, begun.has_progressed = str(query.id), lambda: any(map(_of_a_batch, query.recentProgress))
        _check_end(query, stopped=_wait(query, stop, begun))

    restarting(start, attempts=attempts, pause_s=pause_s, stop=stop, on_restart=on_restart, explain=explain)


def restarting(
    work: Callable[[WorkStart], None],
    *,
    attempts: int,
    pause_s: float,
    stop: Callable[[], bool],
    on_restart: Callable[[Restart], None],
    explain: Callable[[BaseException], Reason | None] = reason,
) -> None:
    """Call ``work``, and call it again when it failed and a restart helps. For the parameters, see `run`."""
    failed = 0
    while True:
        begun = WorkStart()
        try:
            work(begun)
            return
        except Exception as error:
            why = explain(error)
            if stop() or why is None or not why.restart_helps:
                raise
            failed = 1 if begun.has_progressed() else failed + 1
            if failed > attempts:
                raise
        restart = Restart(why, failed, attempts, _longer(pause_s, failed - 1))
        _count(restart, begun.query)
        on_restart(restart)
        if not pause(restart.pause_s, stop):
            return
        _empty_cache()


def _longer(pause_s: float, doublings: int) -> float:
    # A float has room for fewer doublings than there may be attempts.
    return min(pause_s * 2.0 ** min(doublings, _MOST_DOUBLINGS), _LONGEST_PAUSE_S)


def _wait(query: StreamingQuery, stop: Callable[[], bool], begun: WorkStart) -> bool:
    """Wait until the query has ended, after its last micro-batch was committed or aborted. Whether it was stopped; its
    error is raised. Notes a finished micro-batch, as Spark forgets it when the query has been idle for long."""
    progressed = False
    while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # its stubs know whole seconds only
        if stop():
            query.stop()
            return True
        if not progressed and (last := query.lastProgress) is not None and _of_a_batch(last):
            progressed, begun.has_progressed = True, lambda: True
    return False


def _check_end(query: StreamingQuery, *, stopped: bool) -> None:
    from spark_eos.sink.ended import check_end

    check_end(query, stopped=stopped)


def _of_a_batch(progress: StreamingQueryProgress) -> bool:
    """Return whether this is the progress of a finished micro-batch. An idle query reports progress, too."""
    return "addBatch" in progress["durationMs"]


def pause(pause_s: float, stop: Callable[[], bool]) -> bool:
    """Wait; False if the wait was cut short."""
    until = time.monotonic() + pause_s
    while (left := until - time.monotonic()) > 0:
        if stop():
            return False
        time.sleep(min(left, _POLL_S))
    return not stop()


def _count(restart: Restart, query: str) -> None:
    """Count the restart in the metrics."""
    from spark_eos.base.metrics_events import here

    here().tell("restart", query=query, condition=restart.reason.condition)


def _empty_cache() -> None:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.active()  # or the default one, in a thread that has none
    except PySparkRuntimeError:
        return
    session.catalog.clearCache()
