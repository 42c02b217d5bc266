"""Output partitions that lose their newest records by an unclean election: what is gone is gone, and nothing else is.

Who has to look at a transaction sees that it has lost its end, or all of a partition, and does not commit it.
"""

from __future__ import annotations

import pytest

from .plan import Plan
from .play import Run, play, runs_with
from .schedule import Extras, Schedule
from .world import Fault, Strike

SEEDS = 200
_DIES = Fault(0, Strike.DRIVER_DIES, 70_000)


def _run(at: str, records: int, then: Fault | None = None) -> Run:
    """A query whose first output partition loses so many records there, in the first micro-batch."""
    return play(Schedule(Plan(rows=(8, 3), tasks=(1,)), (Fault(0, Strike.OUTPUT_CUT, records - 1, at, then),)))


@pytest.mark.parametrize(
    ("at", "records", "then", "stops", "seen"),
    [
        *(("commit.decided", n, _DIES, ["died", "EOS_DECISION_BROKEN", "done"], 11) for n in (1, 3, 5)),
        ("prepare.flushed", 3, None, ["done"], 11),
        ("commit.decided", 1, None, ["done"], 10),
    ],
)
def test_a_transaction_that_has_lost_rows(
    at: str, records: int, then: Fault | None, stops: list[str], seen: int
) -> None:
    """The end of it, or all of a partition. A decision is aborted as the error says, and written again. One that is
    handed over at once is looked at in one partition: that attempt fails. Before the end of a young one nobody asks all
    leaders for its end, and no abort is in the log after it, so that rows are lost, as a plain producer would not know
    either. Nothing is doubled."""
    run = _run(at, records, then)
    assert (run.query.stops, len(run.watch.seen)) == (stops, seen)


@pytest.mark.parametrize("records", [1, 3, 5])
def test_a_transaction_that_is_old_is_looked_at_before_it_is_decided(records: int) -> None:
    """Nothing is decided, and the replay writes all of it."""
    run = _run("commit.entered", records, Fault(0, Strike.PAUSE, 70_000))
    assert run.query.stops[0] in ("EOS_TRANSACTION_BROKEN", "EOS_TRANSACTION_EXPIRED", "EOS_TRANSACTION_TOO_OLD")
    assert run.watch.seen.keys() == set(range(11))


def test_a_marker_that_is_lost_leaves_rows_to_an_operator() -> None:
    """What was committed is open once more, in that partition alone; what comes after it waits for its end. Whoever
    looks back waits for the marker, too, and says so; when the operator has aborted it there, its rows are missing."""
    run = _run("commit log", 1 + 1)
    assert run.query.stops == ["EOS_OUTCOME_UNCLEAR", "EOS_ROWS_MISSING"]
    assert run.watch.lost.reopened


@pytest.mark.parametrize("two_phase", [False, True])
def test_a_decision_in_front_of_which_an_earlier_one_is_open_again_is_not_aborted_unasked(two_phase: bool) -> None:
    """The earlier one has lost its marker in a partition, and its producer id is used again: both get the same end. The
    decision has all its rows, so it is not broken. An operator who has read that ends both there."""
    cut = Fault(0, Strike.OUTPUT_CUT, 21, "prepare.begun", Fault(0, Strike.DRIVER_DIES, 0, "commit.decided"))
    second = Fault(0, Strike.STALL, 1, "commit log", Fault(0, Strike.STALL, 1, "commit log", cut))
    run = play(Schedule(Plan(rows=(8, 0, 8), tasks=(1,), two_phase=(two_phase,)), (second,)))
    assert run.watch.lost.reopened
    assert run.query.stops == ["died", "EOS_DECISION_BROKEN", "done"]
    assert {*range(8, 16)} <= run.watch.seen.keys()


def test_many_lose_rows_and_some_are_told_of_it() -> None:
    """What the other schedules of the tests have, too."""
    cut = [one for one in runs_with(SEEDS, Extras(outputs=1.0)) if one.watch.lost.cut_ms]
    told = [one for one in cut if {"EOS_DECISION_BROKEN", "EOS_TRANSACTION_BROKEN"} & {*one.query.stops}]
    assert len(cut) > SEEDS // 4 and told
