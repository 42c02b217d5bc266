"""A ledger that loses its newest records by an unclean election: which losses a start notices, and which nobody can."""

from __future__ import annotations

from dataclasses import replace

from .plan import Plan
from .play import Run, play, runs_with
from .schedule import Extras, Schedule
from .world import Fault, Strike

SEEDS = 300
TRUNCATED = "EOS_LEDGER_TRUNCATED"


def _after(records: int, at: str) -> Run:
    """A query whose driver dies in its first micro-batch when the ledger loses so many records, at the latest."""
    faults = Fault(0, Strike.DRIVER_DIES, 0, at), Fault(0, Strike.LEDGER_CUT, records - 1, at)
    return play(Schedule(Plan(rows=(4, 3), tasks=(2,)), faults))


def test_a_decision_of_which_nothing_is_committed() -> None:
    """Whether somebody has seen its rows, nobody can tell; and the group has its offsets."""
    assert _after(2, "commit.decided").query.stops == ["died", TRUNCATED]


_REPAIRED = Fault(0, Strike.PAUSE, 70_000, "commit.decided")


def test_the_end_of_a_query_whose_repair_is_lost() -> None:
    """The head that is left is of the same micro-batch, and names transactions that were lost and written again."""
    cut = Fault(0, Strike.LEDGER_CUT, 12, "commit.ended", Fault(0, Strike.STALL, 3))
    run = play(Schedule(Plan(rows=(4,), tasks=(2,)), (replace(_REPAIRED, then=cut),)))
    assert run.query.stops == ["EOS_TRANSACTION_LOST", TRUNCATED]


def test_how_many_losses_nobody_notices() -> None:
    """Those where the ledger was taken again after the decision, and before somebody could ask; they are few."""
    cut = [one for one in runs_with(SEEDS, Extras(cuts=1.0)) if one.world.struck[Strike.LEDGER_CUT]]
    excused = [one for one in cut if one.watch.excused]
    stopped = [one for one in cut if TRUNCATED in one.query.stops]
    assert excused and stopped and len(excused) < len(cut) // 20
