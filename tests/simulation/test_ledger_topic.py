"""A ledger topic that loses heads, or is given partitions: which losses a start notices, and which nobody can.

It loses its newest records by an unclean election; or it is lost, or emptied from the front, and begun anew by
``ledger.begin``, which stays set after that. That counts for its micro-batch only: when the ledger is lost once more,
at a later one, the query has to stop again.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from .breaking import put_back
from .invariants import OWN_GENERATION
from .ledger_mistakes import first_head_not_looked_for_by_writing
from .plan import Plan
from .play import Run, play, runs_with
from .schedule import Extras, Schedule
from .world import Fault, Strike, Violation

SEEDS = 150
MISSING, ROWS_MISSING, TRUNCATED = "EOS_LEDGER_HEAD_MISSING", "EOS_ROWS_MISSING", "EOS_LEDGER_TRUNCATED"

#: A partition is aborted after the decision, and each of the micro-batch's transactions is in both partitions.
ABORTED = Fault(0, Strike.ABORTED_IN_PLACE, 0, "commit.decided")


@pytest.mark.parametrize("strike", [Strike.LEDGER_LOST, Strike.LEDGER_TRIMMED])
@pytest.mark.parametrize("sets", [False, True])
def test_a_ledger_that_is_lost_between_micro_batches(strike: Strike, sets: bool) -> None:
    """Who plans the next one stops, and names it; it is set, and the query goes on."""
    assert _stops(Fault(0, strike, 3, "commit log"), sets=sets) == [MISSING, *(["done"] if sets else [])]


@pytest.mark.parametrize("strike", [Strike.LEDGER_LOST, Strike.LEDGER_TRIMMED])
def test_a_ledger_that_is_lost_with_a_decision(strike: Strike) -> None:
    """The micro-batch that the error names was planned by an earlier start: nobody sets that."""
    assert _stops(Fault(0, strike, 3, "commit.decided", Fault(0, Strike.DRIVER_DIES))) == ["died", MISSING]


def _stops(fault: Fault, *, sets: bool = True) -> list[str]:
    """How a query ends, each time, that is struck in its second micro-batch."""
    return _run(fault, sets=sets).query.stops


def _run(fault: Fault, *, sets: bool = True) -> Run:
    plan = Plan(rows=(4, 3, 4), tasks=(2,), sets_begin=sets)
    return play(Schedule(plan, (Fault(0, Strike.STALL, 1, "commit log", fault),)))


def test_many_go_on_and_some_lose_it_once_more() -> None:
    """What the other schedules of the tests have, too."""
    begun = [one for one in runs_with(SEEDS, Extras(begins=1.0)) if one.query.begin_at is not None]
    again = [one for one in begun if one.query.stops.count(MISSING) > 1]
    excused = [one for one in begun if one.watch.excused]
    assert len(begun) > SEEDS // 10 and again and len(excused) < len(begun) // 3


def test_left_set_it_hides_a_loss_at_its_own_micro_batch() -> None:
    """Known, and excused: the same loss, decided there since, is begun anew once more."""
    again = Fault(0, Strike.LEDGER_TRIMMED, 3, "commit.ended", Fault(0, Strike.DRIVER_DIES))
    run = _run(Fault(0, Strike.LEDGER_TRIMMED, 3, "commit log", Fault(0, Strike.STALL, 1, "open.taken", again)))
    assert run.watch.excused and run.query.stops == [MISSING, "died", "done"]


def _then(*steps: Fault) -> Fault:
    """One after the other."""
    first, *rest = steps
    return replace(first, then=_then(*rest)) if rest else first


def _lost(at: str, strike: Strike = Strike.LEDGER_LOST) -> Fault:
    return Fault(0, strike, 3, at)


@pytest.mark.parametrize(
    ("steps", "rows", "stops"),
    [
        # Known, and excused: the process that has committed them finds that they are missing, and has no ledger to note
        # it in. Who begins a new one by ``ledger.begin`` says that they are there
        ((ABORTED, _lost("commit: end eos-q-1-1")), (8, 3), [MISSING, "done"]),
        ((ABORTED, _lost("commit log")), (8, 3), [MISSING, "done"]),
        # That process has its head in memory, and publishes it once more, with what it has found
        ((ABORTED, _lost("commit log", Strike.LEDGER_TRIMMED)), (8, 3), [ROWS_MISSING]),
        # These were looked at before there was another decision
        ((ABORTED, Fault(0, Strike.STALL, 1, "commit log"), _lost("commit log")), (8, 3, 4), [ROWS_MISSING]),
    ],
)
def test_rows_that_were_aborted_before_the_ledger_was_lost_or_emptied(
    steps: tuple[Fault, ...], rows: tuple[int, ...], stops: list[str]
) -> None:
    """Of the last micro-batch, or of the one before."""
    run = play(Schedule(Plan(rows=rows, tasks=(2,), sets_begin=True), (_then(*steps),)))
    assert run.query.stops == stops
    assert not run.watch.excused and run.watch.seen.keys() != set(range(sum(rows)))


def test_a_decision_of_which_nothing_is_committed() -> None:
    """Whether somebody has seen its rows, nobody can tell; and the group has its offsets."""
    faults = Fault(0, Strike.DRIVER_DIES, 0, "commit.decided"), Fault(0, Strike.LEDGER_CUT, 1, "commit.decided")
    assert play(Schedule(Plan(rows=(4, 3), tasks=(2,)), faults)).query.stops == ["died", TRUNCATED]


def test_the_end_of_a_query_whose_repair_is_lost() -> None:
    """The head that is left is of the same micro-batch, and names transactions that were lost and written again."""
    repaired, cut = Fault(0, Strike.PAUSE, 70_000, "commit.decided"), Fault(0, Strike.LEDGER_CUT, 12, "commit.ended")
    run = play(Schedule(Plan(rows=(4,), tasks=(2,)), (_then(repaired, cut, Fault(0, Strike.STALL, 3)),)))
    assert run.query.stops == ["EOS_TRANSACTION_LOST", TRUNCATED]


def test_how_many_losses_nobody_notices() -> None:
    """Those where the ledger was taken again after the decision, and before somebody could ask; they are few."""
    cut = [one for one in runs_with(SEEDS, Extras(cuts=1.0)) if one.world.struck[Strike.LEDGER_CUT]]
    excused = [one for one in cut if one.watch.excused]
    stopped = [one for one in cut if TRUNCATED in one.query.stops]
    assert excused and stopped and len(excused) < len(cut) // 20


#: The second start of the query leads to another partition than the first one did, and sees neither that one's head nor
#: a transaction of its tasks, which have not begun yet.
SCHEDULE = Schedule(
    plan=Plan(rows=(4,), tasks=(2, 2, 2), groups=("group", "other"), keeps=False),
    faults=(
        Fault(0, Strike.LEADER_STALE, 15_001, at="open.published"),
        Fault(1, Strike.STALL, 2_000, at="open.published"),
        Fault(9, Strike.LEDGER_GROWS, 15),
        Fault(14, Strike.SECOND_DRIVER, 301),
        Fault(45, Strike.APPEND_FAILS, 3),
    ),
    quantum=5,
)


def test_a_first_head_is_looked_for_by_writing_to_each_partition() -> None:
    """Who acknowledges a record knows what is before it. By reading alone, two runs would be the first."""
    play(SCHEDULE)
    with put_back(first_head_not_looked_for_by_writing), pytest.raises(Violation, match=OWN_GENERATION):
        play(SCHEDULE)
