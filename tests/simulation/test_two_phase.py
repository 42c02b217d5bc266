"""Transactions that never expire, and the operator who ends them: what no timeout puts right is found in time."""

from __future__ import annotations

import pytest

from . import ledger
from .breaking import put_back
from .mistakes import clean_up_of_transactions_alone
from .plan import Plan
from .play import Run, open_at_rest, play
from .schedule import Schedule
from .world import Fault, Strike

QUANTA = (1, 2, 5, 20)


def _held(quantum: int, *, two_phase: bool) -> bool:
    """Whether something is open at the end of two minutes without anything to commit. A second attempt of a task has
    its transactional id, then is cut off for longer than anybody looks; it goes on, writes a row, and dies."""
    own = f"{ledger.PREFIX}-{ledger.QUERY}-1-0-0-1"
    dies = Fault(0, Strike.TASK_DIES, 1, f"produce {own}")
    cut_off = Fault(0, Strike.STALL, 50_000, f"produce {own}", dies)
    faults = (Fault(0, Strike.SPECULATION, 0, "prepare.flushed", cut_off),)
    plan = Plan(rows=(4, 3), tasks=(2,), idle_ms=120_000, lingering=True, timeout_ms=900_000, two_phase=(two_phase,))
    run = Run(Schedule(plan, faults, quantum))
    is_held = bool(open_at_rest(run)[0])
    assert run.world.struck[Strike.STALL] == 1  # one that was fenced does not come to its death
    return is_held


@pytest.mark.parametrize("quantum", QUANTA)
def test_an_attempt_that_begins_after_everybody_has_looked(quantum: int) -> None:
    """With a timeout it holds readers until then. Without, its id is fenced while nothing is open under it yet."""
    assert _held(quantum, two_phase=False)
    assert not _held(quantum, two_phase=True)
    with put_back(clean_up_of_transactions_alone):
        assert _held(quantum, two_phase=True)  # for ever


def _stops(quantum: int) -> list[str]:
    """How the query ends, each time, after all of this: an attempt of a task dies, its transaction open for ever; then
    the driver, when it has committed what another attempt wrote behind that; the coordinators forget the commit."""
    later = Fault(0, Strike.PAUSE, 5_000, "task: ledger ")
    forgotten = Fault(0, Strike.WEEK_PASSES, 0, "task: ledger ", later)
    driver_dies = Fault(0, Strike.DRIVER_DIES, 0, "commit.ended", forgotten)
    produce = f"produce {ledger.PREFIX}-{ledger.QUERY}-1-0-0"
    task_dies = Fault(0, Strike.TASK_DIES, 1, produce, driver_dies)  # when it has written to both partitions
    faults = (Fault(0, Strike.STALL, 1, produce, task_dies),)
    return play(Schedule(Plan(rows=(4, 3), tasks=(2,), two_phase=(True,)), faults, quantum)).query.stops


@pytest.mark.parametrize("quantum", QUANTA)
def test_what_an_attempt_left_open_for_ever_does_not_keep_a_query_from_starting(quantum):
    """The log cannot tell what became of a decision behind it, and nobody else can: the start itself ends it first."""
    assert _stops(quantum) == ["died", "done"]
