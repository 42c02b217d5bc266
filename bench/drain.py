"""Runs a query until its input is read, and says what a row cost once the query had warmed up."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from bench import queries
from bench.loop import TimedTransaction
from bench.meter import BROKER, CLIENT, Cost, Meter
from bench.queries import Flow

#: Of the micro-batches with rows, how many at the beginning do not count: workers, connections and the JVM's compiler
#: are still getting up in them.
LEFT_OUT = 2
#: A shorter stretch is too short to measure: processor time is looked up but a few times in it.
LEAST_S = 1.0
#: So is one of smaller micro-batches: beginning and ending them takes most of their time.
LEAST_ROWS = 10_000
#: Less processor time is too little: it is known in ticks of 10 ms for each process.
LEAST_CPU_S = 0.1
_END_S = 900


@dataclass(frozen=True)
class Stretch:
    """The micro-batches that count, back to back: rows, and times in seconds since the epoch."""

    batches: int
    rows: int
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Run:
    """One measured run. ``…_core_us``: microseconds of one core for each row.

    ``rows`` and ``batches`` are all that the run read; ``counted_…`` is what the rest is of. None: it was too short to
    measure (`LEAST_S`, `LEAST_ROWS`, `LEAST_CPU_S`).
    """

    rows: int
    batches: int
    counted_rows: int
    counted_batches: int
    counted_seconds: float
    rows_per_second: float | None = None
    client_core_us: float | None = None
    broker_core_us: float | None = None
    largest_worker_mib: float | None = None
    workers_mib: float | None = None


def drain(spark: SparkSession, bootstrap_servers: str, flow: Flow, roots: Mapping[str, Sequence[int]]) -> Run:
    """Run it by availableNow on a checkpoint of its own. ``roots``: the groups of processes to meter."""

    return run_out(lambda checkpoint: queries.start_query(spark, bootstrap_servers, flow, checkpoint), roots)


def run_out(start: Callable[[str], StreamingQuery], roots: Mapping[str, Sequence[int]], *, rows_each: int = 1) -> Run:
    """Run a query that ends by itself. ``start`` is given the folder of its checkpoint; ``rows_each``: in each of the
    query's own rows, where these are files."""
    with tempfile.TemporaryDirectory(prefix="spark-eos-bench-") as checkpoint, Meter(roots) as meter:
        query = start(checkpoint)
        wait_for_end(query)
        progress = [{**entry, "numInputRows": rows_each * queries.rows_read(entry)} for entry in query.recentProgress]
        progress = [entry for entry in progress if entry["numInputRows"]]
    return judge_batches(progress, meter)


def wait_for_end(query: StreamingQuery) -> None:
    """Of a query that ends by itself; it is stopped in any case. Raises what it raised, and TimeoutError."""
    try:
        if not query.awaitTermination(_END_S):
            raise TimeoutError(f"a query did not end within {_END_S} s")
    finally:
        query.stop()


def judge_batches(progress: Sequence[Mapping[str, Any]], meter: Meter) -> Run:
    """``progress``: of each micro-batch with rows."""
    return measured(sum(entry["numInputRows"] for entry in progress), len(progress), stretch(progress), meter)


def judge_transactions(done: Sequence[TimedTransaction], meter: Meter) -> Run:
    """``done``: all that a program or a job has written, in their order."""
    counted = done[LEFT_OUT:]
    part = Stretch(len(counted), sum(t.rows for t in counted), counted[0].begin, counted[-1].end)
    return measured(sum(t.rows for t in done), len(done), part, meter)


def measured(rows: int, batches: int, counted: Stretch, meter: Meter) -> Run:
    """``rows``, ``batches``: of the whole run; ``counted``: the part of it that counts."""
    base = Run(rows, batches, counted.rows, counted.batches, counted.seconds)
    if counted.seconds < LEAST_S or counted.rows < LEAST_ROWS * counted.batches:
        return base
    cost = costs(meter.between(counted.begin, counted.end), counted.rows)
    return replace(base, rows_per_second=counted.rows / counted.seconds, **cost)


class Costs(TypedDict):
    """The fields of a `Run` that come from the meter."""

    client_core_us: float | None
    broker_core_us: float | None
    largest_worker_mib: float
    workers_mib: float


def costs(cost: Cost, rows: int) -> Costs:
    """The fields of a run that come from the meter."""

    def for_each_row(cpu_s: float) -> float | None:
        return cpu_s * 1e6 / rows if cpu_s >= LEAST_CPU_S else None

    return {
        "client_core_us": for_each_row(cost.cpu[CLIENT]),
        "broker_core_us": for_each_row(cost.cpu[BROKER]),
        "largest_worker_mib": cost.largest_worker_mib,
        "workers_mib": cost.workers_mib,
    }


def stretch(progress: Sequence[Mapping[str, Any]]) -> Stretch:
    """From the begin of the first micro-batch that counts to the end of the last, the gaps between them included."""
    counted = progress[LEFT_OUT:]
    if not counted:
        raise ValueError(f"{len(progress)} micro-batches are too few: the first {LEFT_OUT} do not count")
    last = counted[-1]
    return Stretch(
        batches=len(counted),
        rows=sum(entry["numInputRows"] for entry in counted),
        begin=seconds(counted[0]["timestamp"]),
        end=seconds(last["timestamp"]) + last["batchDuration"] / 1000,
    )


def seconds(timestamp: str) -> float:
    """When a micro-batch's trigger began, as Spark writes it in UTC."""
    return datetime.datetime.fromisoformat(timestamp).timestamp()
