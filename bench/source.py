"""Mode ``source``: Kafka → Spark → nothing. Our source and the built-in one, in turns, in one session."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from bench.drain import LEFT_OUT, drain
from bench.load import fill
from bench.queries import BUILTIN_KAFKA, EOS_KAFKA, NOOP, Flow
from bench.result import ModeResult, WrongResult
from bench.session import Bench
from bench.turns import BenchPlan, Say, take_turns

METRIC = "rows_per_second"
PARTITIONS = 4


@dataclass(frozen=True)
class Workload:
    """``rows`` rows with values of so many bytes. ``keys``: with so many different keys, as JSON; else without.
    ``codec``: by which record batches are compressed, those that are read and those that are written."""

    value_bytes: int
    rows: int
    keys: int = 0
    codec: str = "none"

    def __str__(self) -> str:
        more = (" with keys" if self.keys else "") + (f", {self.codec}" if self.codec != "none" else "")
        return f"{self.value_bytes} B{more}"


WORKLOADS = (Workload(100, 4_000_000), Workload(1024, 1_000_000))
BATCHES = LEFT_OUT + 6
#: Rows come in multiples of this, so that every micro-batch has as many of each partition as the others.
UNIT = PARTITIONS * BATCHES


def measure(bench: Bench, plan: BenchPlan, say: Say) -> ModeResult:
    """Both contenders, for each size. Raises WrongResult when one read other rows than there are."""
    result = ModeResult("source", BUILTIN_KAFKA, METRIC)
    for topic, one, rows in inputs(bench, plan, "source", say):
        contenders = {name: partial(_read, bench, name, topic, rows) for name in (EOS_KAFKA, BUILTIN_KAFKA)}
        take_turns(plan, result, str(one), contenders, say)
    return result


def _read(bench: Bench, name: str, topic: str, rows: int) -> dict[str, Any]:
    flow = Flow(name, NOOP, topic, max_offsets=rows // BATCHES)
    run = drain(bench.spark, bench.bootstrap_servers, flow, bench.roots)
    if run.rows != rows:
        raise WrongResult(f"{name} read {run.rows:,} of {rows:,} rows")
    return asdict(run)


def inputs(
    bench: Bench, plan: BenchPlan, mode: str, say: Say, wanted: Sequence[Workload] = WORKLOADS
) -> Iterator[tuple[str, Workload, int]]:
    """For each workload: a topic with its rows, the workload, the number of rows. The topic is deleted before the next
    one."""
    for one in wanted:
        if not plan.has(str(one)):
            continue
        rows = plan.rows(one.rows, UNIT)
        topic = f"in-{uuid.uuid4().hex[:8]}"
        say(f"{mode}: writing {rows:,} rows of {one}")
        fill(bench.cluster, topic, rows, one.value_bytes, PARTITIONS, one.keys, one.codec)
        yield topic, one, rows
        bench.delete_topic(topic)
