"""Contenders that do the same, each checked by what has arrived."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from bench.count import committed_rows
from bench.drain import Run
from bench.result import ModeResult, WrongResult
from bench.session import Bench
from bench.source import BATCHES, PARTITIONS
from bench.turns import BenchPlan, Say, take_turns

#: The contenders' names in the tables.
OURS_NAME, BUILTIN_NAME = "ours", "built-in, tuned"
#: Files of an input: so many in each micro-batch that every core has work.
FILES_AT_ONCE = PARTITIONS
FILES = BATCHES * FILES_AT_ONCE


def duel(
    plan: BenchPlan,
    result: ModeResult,
    case: str,
    rows: int,
    contenders: Mapping[str, Callable[[], tuple[Run, int]]],
    say: Say,
) -> None:
    """Add a case to the result. Each contender returns its run, and how many rows there are where it wrote them. Raises
    WrongResult when these are not ``rows``, or it read others."""
    runs = {name: partial(_checked, name, case, rows, run) for name, run in contenders.items()}
    take_turns(plan, result, case, runs, say)


def _checked(name: str, case: str, rows: int, run: Callable[[], tuple[Run, int]]) -> dict[str, Any]:
    return metrics(name, case, *run(), rows)


def metrics(name: str, case: str, run: Run, arrived: int, rows: int) -> dict[str, Any]:
    """The metrics of a run that has read so many rows, all of which have arrived. Raises WrongResult otherwise."""
    if not run.rows == arrived == rows:
        raise WrongResult(f"{name}, {case}: read {run.rows:,} and wrote {arrived:,} of {rows:,} rows")
    return asdict(run)


def into_topic(bench: Bench, run: Callable[[str], Run]) -> tuple[Run, int]:
    """A run into a topic of its own, whose name it is given; and how many rows a reader finds there."""
    output = f"out-{uuid.uuid4().hex[:8]}"
    bench.cluster.create_topic(output, PARTITIONS)
    done = run(output)
    arrived = committed_rows(bench.bootstrap_servers, output)
    bench.delete_topic(output)
    return done, arrived
