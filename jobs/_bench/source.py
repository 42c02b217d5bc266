"""Mode ``source``: Kafka → Spark → nothing. Our source and the built-in one, in turns, in one session."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from jobs._bench.drain import LEFT_OUT, drain
from jobs._bench.load import fill
from jobs._bench.queries import BUILTIN, NOOP, OURS, Flow
from jobs._bench.result import Result, Series, WrongResult, cell
from jobs._bench.session import Bench
from jobs._bench.turns import Plan

METRIC = "rows_per_second"
PARTITIONS = 4


@dataclass(frozen=True)
class Input:
    """``rows`` rows with values of so many bytes. ``keys``: with so many different keys, as JSON; else without."""

    value_bytes: int
    rows: int
    keys: int = 0

    def __str__(self) -> str:
        return f"{self.value_bytes} B with keys" if self.keys else f"{self.value_bytes} B"


INPUTS = (Input(100, 4_000_000), Input(1024, 1_000_000))
KEYED = Input(95, 4_000_000, 100_000)
BATCHES = LEFT_OUT + 6
#: Rows come in multiples of this, so that every micro-batch has as many of each partition as the others.
UNIT = PARTITIONS * BATCHES


def measure(bench: Bench, plan: Plan, say: Callable[[str], None]) -> Result:
    """Both contenders, for each size. Raises WrongResult when one read other rows than there are."""
    result = Result("source", BUILTIN, METRIC, "from a Kafka topic into nothing")
    for topic, case, rows in inputs(bench, plan, "source", say):
        series = {name: Series(name, case) for name in (OURS, BUILTIN)}
        for turn, name in plan.turns(list(series)):
            flow = Flow(name, NOOP, topic, max_offsets=rows // BATCHES)
            run = drain(bench.spark, bench.bootstrap_servers, flow, bench.roots)
            if run.rows != rows:
                raise WrongResult(f"{name} read {run.rows:,} of {rows:,} rows")
            say(f"source: {name}, {case}, run {turn}: {cell(METRIC, run.rows_per_second)} rows/s")
            if turn > 0:
                series[name].runs.append(asdict(run))
        result.series += series.values()
    return result


def inputs(
    bench: Bench, plan: Plan, mode: str, say: Callable[[str], None], wanted: Sequence[Input] = INPUTS
) -> Iterator[tuple[str, str, int]]:
    """For each of them: a topic that is full, the name of the case, the number of rows. It is gone with the next."""
    for one in wanted:
        rows = plan.rows(one.rows, UNIT)
        topic = f"in-{uuid.uuid4().hex[:8]}"
        say(f"{mode}: writing {rows:,} rows of {one}")
        fill(bench.cluster, topic, rows, one.value_bytes, PARTITIONS, one.keys)
        yield topic, str(one), rows
        bench.delete_topic(topic)
