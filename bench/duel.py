"""Two contenders that do the same, one after the other, in turns."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict

from bench.count import committed_rows
from bench.drain import Run
from bench.result import ModeResult, Series, WrongResult, cell
from bench.session import Bench
from bench.source import BATCHES, METRIC, PARTITIONS
from bench.turns import BenchPlan

#: The contenders' names in the tables.
OURS_NAME, BUILTIN_NAME = "ours", "built-in, tuned"
#: Files of an input: so many in each micro-batch that every core has work.
FILES_AT_ONCE = PARTITIONS
FILES = BATCHES * FILES_AT_ONCE

Say = Callable[[str], None]


def duel(
    plan: BenchPlan,
    result: ModeResult,
    case: str,
    rows: int,
    contenders: Mapping[str, Callable[[], tuple[Run, int]]],
    say: Say,
) -> None:
    """Add a case to the result, of the contenders that are not left out. Each of them returns its run, and how many
    rows were found where it wrote them.

    Raises WrongResult when these are not ``rows``, or it read others.
    """
    series = {name: Series(name, case) for name in contenders if name not in plan.without}
    for turn, name in plan.turns(list(series)):
        run, arrived = contenders[name]()
        if not run.rows == arrived == rows:
            raise WrongResult(f"{name}, {case}: read {run.rows:,} and wrote {arrived:,} of {rows:,} rows")
        say(f"{result.mode}: {name}, {case}, run {turn}: {cell(METRIC, run.rows_per_second)} rows/s")
        if turn > 0:
            series[name].runs.append(asdict(run))
    result.series += series.values()


def into_topic(bench: Bench, run: Callable[[str], Run]) -> tuple[Run, int]:
    """A run into a topic of its own, whose name it is given; and how many rows a reader finds there."""
    output = f"out-{uuid.uuid4().hex[:8]}"
    bench.cluster.create_topic(output, PARTITIONS)
    done = run(output)
    arrived = committed_rows(bench.bootstrap_servers, output)
    bench.delete_topic(output)
    return done, arrived
