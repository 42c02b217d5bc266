"""Checkpoints whose newest files are lost: every row once, or a stop that says why, as in
``tests/integration/sink/test_damaged_checkpoints.py`` and ``tests/chaos/test_unsynced.py``.
"""

from __future__ import annotations

import pytest

from .checkpoint import LOSSES
from .plan import Plan
from .play import play
from .schedule import Schedule
from .world import Fault, Strike

AS_IT_WAS, WITH_MORE_ROWS, TORN = 0, len(LOSSES), 3 * len(LOSSES)
BEHIND = "EOS_CHECKPOINT_BEHIND"


def _stops(lost: str, at: str, how: int = AS_IT_WAS, batch: int = 2) -> list[str]:
    """How a query of four micro-batches ends, each time, that loses files at a point of this micro-batch."""
    fault = Fault(0, Strike.CHECKPOINT_LOST, LOSSES.index(lost) + how, at)
    for _ in range(batch):
        fault = Fault(0, Strike.STALL, 1, "commit log", fault)
    return play(Schedule(Plan(rows=(3, 4, 3, 6), tasks=(2,)), (fault,))).query.stops


def test_a_commit_that_is_lost_is_made_again() -> None:
    """The micro-batch runs again, and was decided."""
    assert _stops("commits", "offset log", batch=1) == ["died", "done"]
    assert _stops("commits", "offset log", TORN, batch=1) == ["died", "EOS_CHECKPOINT_DAMAGED", "done"]


@pytest.mark.parametrize("how", [AS_IT_WAS, WITH_MORE_ROWS])
def test_a_micro_batch_that_is_planned_anew_before_its_decision(how: int) -> None:
    """Whatever it reads now, it is decided for the first time."""
    assert _stops("offsets", "commit.verified", how) == ["died", "done"]


def test_a_micro_batch_that_is_planned_anew_after_its_decision() -> None:
    """It must be the same as it was."""
    assert _stops("offsets", "commit.decided") == ["died", "done"]
    assert _stops("offsets", "commit.decided", WITH_MORE_ROWS) == ["died", "EOS_REPLAY_DIVERGED"]


@pytest.mark.parametrize("lost", ["both of two", "both of all"])
def test_a_checkpoint_of_yesterday(lost: str) -> None:
    """The output is ahead of it by two micro-batches or more; by one, that one is only planned anew."""
    assert _stops(lost, "commit.decided") == ["died", BEHIND]
    assert _stops("both of two", "commit.verified") == ["died", "done"]


def test_the_first_offsets_that_are_lost_after_their_commit() -> None:
    """Nobody knows any more where the query began."""
    assert _stops("offsets", "offset log", batch=1) == ["died", "EOS_CHECKPOINT_DAMAGED"]


def test_the_first_offsets_and_the_ledger_are_lost() -> None:
    """What was decided is known by the transactional id of its task alone, whose transaction a late request has begun
    once more, and a later run has fenced: nothing is written again."""
    lost = Fault(0, Strike.PAUSE, 70_000, "offset log", Fault(0, Strike.LEDGER_LOST, 70_000, "offset log"))
    faults = (
        Fault(
            0, Strike.REQUEST_DOUBLED, 2_000, "add eos-q-1-", Fault(0, Strike.DRIVER_DIES, 15_001, "commit log", lost)
        ),
        Fault(110, Strike.DRIVER_DIES, 400_001),
        Fault(116, Strike.CHECKPOINT_LOST, 23, "offset log"),
    )
    run = play(Schedule(Plan(rows=(1, 3), tasks=(2, 2, 2), transaction_version=0), faults))
    assert run.query.stops == ["died", "died", "died", "EOS_CHECKPOINT_DAMAGED", "EOS_LEDGER_HEAD_LOST"]


def test_offsets_that_are_behind_the_commits() -> None:
    """Spark runs what it has the offsets of, though it has passed that."""
    assert _stops("offsets", "offset log") == ["died", BEHIND]
