"""Runs a query until its input is read, and says what a row cost once the query was in its stride."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from jobs._bench.meter import BROKER, CLIENT, Cost, Meter
from jobs._bench.queries import Flow, read, write

#: Of the micro-batches with rows, how many at the beginning do not count: workers, connections and the JVM's compiler
#: are still getting up in them.
LEFT_OUT = 2
_END_SECONDS = 900


@dataclass(frozen=True)
class Stretch:
    """The micro-batches that count, back to back: rows, and times in seconds since the epoch."""

    batches: int
    rows: int
    begin: float
    end: float


@dataclass(frozen=True)
class Run:
    """One measured run. ``…_core_us``: microseconds of one core for each row, None where ``/proc`` is missing.

    ``rows`` and ``batches`` are all that the run read, ``counted_rows`` and ``counted_batches`` what the rest is of.
    """

    rows: int
    batches: int
    counted_rows: int
    counted_batches: int
    rows_per_second: float
    client_core_us: float | None = None
    broker_core_us: float | None = None
    largest_worker_mib: float | None = None
    workers_mib: float | None = None


def drain(spark: SparkSession, bootstrap_servers: str, flow: Flow, roots: Mapping[str, int]) -> Run:
    """Run it by availableNow on a checkpoint of its own. ``roots``: the groups of processes to meter."""
    with tempfile.TemporaryDirectory(prefix="spark-eos-bench-") as checkpoint, Meter(roots) as meter:
        rows = read(spark, bootstrap_servers, flow)
        query = write(rows, bootstrap_servers, flow, checkpoint).trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(_END_SECONDS):
                raise TimeoutError(f"{flow} did not end within {_END_SECONDS} s")
            progress = [entry for entry in query.recentProgress if entry["numInputRows"]]
        finally:
            query.stop()
    return judge(progress, meter)


def judge(progress: Sequence[Mapping[str, Any]], meter: Meter) -> Run:
    """``progress``: of each micro-batch with rows."""
    counted = stretch(progress)
    return Run(
        rows=sum(entry["numInputRows"] for entry in progress),
        batches=len(progress),
        counted_rows=counted.rows,
        counted_batches=counted.batches,
        rows_per_second=counted.rows / (counted.end - counted.begin),
        **costs(meter.between(counted.begin, counted.end), counted.rows),
    )


def costs(cost: Cost | None, rows: int) -> dict[str, float]:
    """The fields of a run that come from the meter; none of them where it knows nothing."""
    if cost is None:
        return {}
    return {
        "client_core_us": cost.cpu[CLIENT] * 1e6 / rows,
        "broker_core_us": cost.cpu[BROKER] * 1e6 / rows,
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
