"""The protocol under schedules of faults, drawn by chance.

``SPARK_EOS_SIMULATION_SCHEDULES`` says how many (500 unless told otherwise), ``SPARK_EOS_SIMULATION_SEED`` where to
begin. A failure prints its seed, and the smallest schedule on the way down that still fails, to be run by ``play``.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from spark_eos.protocol.abort import SWEEPS_AFTER_S

from .__main__ import played
from .breaking import put_back
from .mistakes import nobody_sweeps
from .partition_log import Place
from .plan import Clocks, Plan
from .play import Run, open_at_rest, play
from .schedule import Schedule, draw
from .world import Fault, Strike

SCHEDULES = int(os.environ.get("SPARK_EOS_SIMULATION_SCHEDULES", "500"))
FIRST_SEED = int(os.environ.get("SPARK_EOS_SIMULATION_SEED", "0"))


@pytest.mark.parametrize("clock", ["driver", "tasks", "brokers"])
@pytest.mark.parametrize("ahead_ms", [3_600_000, -3_600_000])
def test_clocks_that_are_off_stop_nothing(clock: str, ahead_ms: int) -> None:
    """By far more than transactions live, and nobody sets them right."""
    run = play(Schedule(Plan(rows=(3, 4, 0, 6), tasks=(2,), clocks=Clocks(**{clock: ahead_ms}))))
    assert run.query.stops == ["done"]


def test_the_same_schedule_runs_the_same_way() -> None:
    """A schedule decides everything: a failure can be run again."""
    for seed in range(20):
        first, second = (_traced(draw(random.Random(seed))) for _ in range(2))
        assert first == second


OF_ATTEMPTS = (Strike.SPECULATION, Strike.STAGE_RETRY, Strike.RESULT_LOST, Strike.TASK_DIES, Strike.STALL)
IDLE = Plan(rows=(4, 3), tasks=(2,), idle_ms=1_000 * (sum(SWEEPS_AFTER_S) + 5))


def _left_open(chance: random.Random) -> set[Place]:
    """Partitions in which something is still open when the query, after faults of attempts alone, has been idle."""
    faults = [
        Fault(chance.randrange(120), chance.choice(OF_ATTEMPTS), chance.choice((3, 15, 60, 301, 2_000)))
        for _ in range(chance.choice((2, 4, 6)))
    ]
    plan = replace(IDLE, lingering=chance.random() < 0.5)
    return set().union(*open_at_rest(Run(Schedule(plan, tuple(faults), quantum=chance.choice((1, 2, 5, 20))))))


def test_an_idle_query_holds_no_reader() -> None:
    """What attempts have left open is aborted long before its timeout; without the sweep some of it would stay."""
    seeds = range(SCHEDULES)
    assert [seed for seed in seeds if _left_open(random.Random(seed))] == []
    with put_back(nobody_sweeps):
        assert any(_left_open(random.Random(seed)) for seed in seeds)


def test_schedules_from_seeds() -> None:
    """No schedule loses, doubles or reorders a row, or ends in a stop without a name."""
    for seed in range(FIRST_SEED, FIRST_SEED + SCHEDULES):
        played(seed)


def _traced(schedule: Schedule) -> list[str]:
    run = Run(schedule, traced=True)
    run.play()
    assert run.world.trace is not None
    return run.world.trace
