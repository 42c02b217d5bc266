"""The protocol under schedules of faults, drawn by chance: from seeds, and by Hypothesis.

``SPARK_EOS_SIMULATION_SCHEDULES`` says how many (500 unless told otherwise), ``SPARK_EOS_SIMULATION_SEED`` where to
begin. A failure prints its seed, and the smallest schedule on the way down that still fails, to be run by ``play``.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .machine import Run, Schedule, draw, play, shrink
from .spark import Plan
from .world import Violation

SCHEDULES = int(os.environ.get("SPARK_EOS_SIMULATION_SCHEDULES", "500"))
FIRST_SEED = int(os.environ.get("SPARK_EOS_SIMULATION_SEED", "0"))
LAST_STEPS = 60


def test_a_quiet_query_writes_everything_once() -> None:
    """Without faults, one start of the query is enough."""
    run = play(Schedule(Plan(rows=(3, 4, 0, 6), tasks=(2,))))
    assert run.query.stops == ["done"]


def test_the_same_schedule_runs_the_same_way() -> None:
    """A schedule decides everything: a failure can be run again."""
    for seed in range(20):
        first, second = (_traced(draw(random.Random(seed))) for _ in range(2))
        assert first == second


def test_schedules_from_seeds() -> None:
    """No schedule loses, doubles or reorders a row, or ends in a stop without a name."""
    for seed in range(FIRST_SEED, FIRST_SEED + SCHEDULES):
        schedule = draw(random.Random(seed))
        try:
            play(schedule)
        except Violation as violation:
            pytest.fail(f"seed {seed}: {violation}\n{_told(shrink(schedule, violation.invariant))}")


@settings(
    max_examples=max(1, SCHEDULES // 5),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.randoms(use_true_random=False))
def test_schedules_by_hypothesis(chance: random.Random) -> None:
    """The same, with Hypothesis to choose and to shrink."""
    play(draw(chance))


def _traced(schedule: Schedule) -> list[str]:
    run = Run(schedule, traced=True)
    run.play()
    assert run.world.trace is not None
    return run.world.trace


def _told(schedule: Schedule) -> str:
    """The schedule, and how it ends."""
    run = Run(schedule, traced=True)
    try:
        run.play()
    except Violation as violation:
        assert run.world.trace is not None
        return "\n".join((repr(schedule), str(violation), *run.world.trace[-LAST_STEPS:]))
    return repr(schedule)
