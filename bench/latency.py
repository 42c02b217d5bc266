"""Mode ``latency``: how long a row takes from the call that writes it until a ``read_committed`` reader has it."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from statistics import median, quantiles
from typing import Any

from bench import probe
from bench.child import python_child
from bench.drain import seconds
from bench.queries import AT_ONCE, BUILTIN_KAFKA, EOS_KAFKA, Flow, start_query
from bench.result import ModeResult, WrongResult
from bench.session import Bench, files_of_spark
from bench.source import PARTITIONS
from bench.turns import BenchPlan, Say, take_turns

#: Of the rounds at the beginning, the share that does not count; the query gets up in it.
_LEFT_OUT = 0.25
_METRIC = "latency_ms_p50"
_FEWEST_ROUNDS = 8
#: Rows of one micro-batch have nearly the same latency: of fewer micro-batches nothing is said.
LEAST_BATCHES = 5
_SECONDS = 600


@dataclass(frozen=True)
class LatencyCase:
    """``rounds`` bursts; ``period_s`` between them, or None: a burst when the one before is visible."""

    name: str
    rounds: int
    burst: int
    period_s: float | None


LATENCY_CASES = (LatencyCase("100 rows at a time", 80, 100, None), LatencyCase("1,000 rows/s", 2_000, 10, 0.01))
_BASELINE = "built-in → built-in"
#: Source, sink, and whether Spark writes the checkpoint as it does by itself, instead of as our jobs let it.
_CONTENDERS = {
    "ours → ours": (EOS_KAFKA, EOS_KAFKA, False),
    "ours → ours, Spark's files": (EOS_KAFKA, EOS_KAFKA, True),
    _BASELINE: (BUILTIN_KAFKA, BUILTIN_KAFKA, True),
    "built-in → built-in, files as ours": (BUILTIN_KAFKA, BUILTIN_KAFKA, False),
}


def measure(bench: Bench, plan: BenchPlan, say: Say) -> ModeResult:
    """All contenders, in each case; a run warms up by its own first rounds. Raises WrongResult for missing rows."""
    result = ModeResult("latency", _BASELINE, _METRIC)
    for case in LATENCY_CASES:
        rounds = max(_FEWEST_ROUNDS, round(case.rounds * plan.scale))
        contenders = {name: partial(_run, bench, name, case, rounds) for name in _CONTENDERS}
        take_turns(replace(plan, warm_ups=0), result, case.name, contenders, say)
    return result


def _run(bench: Bench, name: str, case: LatencyCase, rounds: int) -> dict[str, Any]:
    """The query as fast as it can, a micro-batch right after the other, and the probe around it; own topics."""
    source, sink, sparks_files = _CONTENDERS[name]
    flow = Flow(source, sink, f"in-{uuid.uuid4().hex[:8]}", output := f"out-{uuid.uuid4().hex[:8]}")
    for topic in (flow.input, output):
        bench.cluster.create_topic(topic, PARTITIONS)
    spec = probe.ProbeSpec(bench.bootstrap_servers, flow.input, output, PARTITIONS, rounds, case.burst, case.period_s)
    with (
        files_of_spark(bench.spark) if sparks_files else nullcontext(),
        tempfile.TemporaryDirectory(prefix="spark-eos-bench-", ignore_cleanup_errors=True) as checkpoint,
    ):
        query = start_query(bench.spark, bench.bootstrap_servers, flow, checkpoint, AT_ONCE)
        try:
            with python_child(probe.__name__, spec.to_json()) as process:
                seen = process.result(_SECONDS)
                progress = query.recentProgress
        finally:
            query.stop()
    for topic in (flow.input, output):
        bench.delete_topic(topic)
    if len(seen) != rounds * case.burst:
        raise WrongResult(f"{len(seen):,} of {rounds * case.burst:,} rows became visible")
    return judge_rounds(seen, progress, rounds)


def judge_rounds(seen: Sequence[Sequence[float]], progress: Sequence[Any], rounds: int) -> dict[str, Any]:
    """``seen``: round, when written, seconds until visible. Latencies and batches in milliseconds.

    Percentiles are None for fewer than `LEAST_BATCHES`, and for so few rows that none lies beyond: p99 takes 100 rows.
    """
    counted = [row for row in seen if row[0] >= rounds * _LEFT_OUT]
    begin = min(row[1] for row in counted)
    batches = [p["batchDuration"] for p in progress if p["numInputRows"] and seconds(p["timestamp"]) >= begin]
    return {
        "rows": len(seen),
        "counted_rows": len(counted),
        "counted_batches": len(batches),
        "batch_ms_p50": median(batches) if batches else None,
        **percentiles([row[2] * 1000 for row in counted], enough=len(batches) >= LEAST_BATCHES),
    }


def percentiles(latencies: Sequence[float], *, enough: bool = True) -> dict[str, float | None]:
    """The metrics of milliseconds; None where so few lie beyond, and all of them without ``enough``."""
    cuts = quantiles(latencies, n=100, method="inclusive")
    known = {p: enough and len(latencies) * (100 - p) >= 100 for p in (50, 95, 99)}
    return {f"latency_ms_p{p}": cuts[p - 1] if known[p] else None for p in known}
