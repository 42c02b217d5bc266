"""An operator's abort of one partition, of which the coordinator does not know: nothing of it goes unnoticed, however
young the transaction is, and whoever dies meanwhile.
"""

from __future__ import annotations

import pytest

from .plan import Deal, Plan
from .play import Run, play, runs_with
from .schedule import Extras, Schedule
from .world import Fault, Strike

SEEDS = 100


def _all_seen(run: Run) -> bool:
    return run.watch.seen.keys() == set(range(sum(run.query.plan.rows)))


def test_what_one_driver_finds_broken_another_still_commits() -> None:
    """Two batch writes under one id. The first one has decided, and waits for an answer; the second one looks, as it
    starts, and stops. The first one does not look before it commits what is young, and stops as it looks back."""
    faults = (
        Fault(38, Strike.ABORTED_IN_PLACE, 301, "produce eos-q-"),
        Fault(74, Strike.ANSWER_LOST, 2_000, "commit: end eos-q-ledger"),
        Fault(76, Strike.SECOND_DRIVER, 3),
        Fault(78, Strike.PAUSE, 301, "init eos-q-"),
        Fault(95, Strike.REQUEST_LOST, 15_001),
    )
    plan = Plan(rows=(6,), tasks=(2,), groups=(None,), deals=(Deal.RUNS,), two_phase=(False, True), runs=1)
    run = play(Schedule(plan, faults, quantum=2))
    assert sorted(run.query.stops) == ["EOS_DECISION_BROKEN", "EOS_ROWS_MISSING"]


@pytest.mark.parametrize(
    "rows, stops", [((1,), ["EOS_DECISION_BROKEN", "done"]), ((8,), ["EOS_ROWS_MISSING"])], ids=["all", "one"]
)
def test_a_late_request_opens_it_once_more(rows: tuple[int, ...], stops: list[str]) -> None:
    """Aborted in all of its partitions, then committed, and open under the same pair again, as ends do not fence: who
    looks then takes it for undecided. As nobody has seen a row of it, it is aborted and written again. Rows that are
    visible in another partition show the commit."""
    late = Fault(0, Strike.REQUEST_LATE, 2_000, "add eos-q-1-", Fault(0, Strike.DRIVER_DIES, 0, "commit.ended"))
    aborted = Fault(0, Strike.ABORTED_IN_PLACE, 0, "commit: end eos-q-1")
    run = play(Schedule(Plan(rows=rows, tasks=(2,), transaction_version=1), (late, aborted)))
    assert run.query.stops == ["died", *stops]
    assert _all_seen(run) is (stops[-1] == "done")


@pytest.mark.parametrize("at", ["commit: end eos-q-1", "commit: describe eos-q-1", "commit: fetch data"])
@pytest.mark.parametrize("rows", [(1,), (8,)], ids=["all", "one"])
@pytest.mark.parametrize("double_fence", [False, True])
def test_an_abort_while_its_coordinator_is_about_to_abort_it(
    rows: tuple[int, ...], at: str, double_fence: bool
) -> None:
    """Its timeout has come, and the commit is refused before there is a marker anywhere. Then the log alone may tell
    that it is lost, where the coordinator has fenced it and does not end it yet. Its rows are written again in any
    case."""
    aborted = Fault(0, Strike.ABORTED_IN_PLACE, 0, at)
    passes = Fault(0, Strike.PAUSE, 70_000, "commit.decided", aborted)
    slow = Fault(0, Strike.TIMEOUT_SLOW, 15_001, "commit.", passes)
    run = play(Schedule(Plan(rows=rows, tasks=(2,)), (slow,), double_fence=double_fence))
    assert _all_seen(run) and set(run.query.stops) <= {"EOS_TRANSACTION_LOST", "EOS_DECISION_BROKEN", "done"}


def test_schedules_with_such_aborts() -> None:
    """Beside whatever else happens."""
    told = sum("EOS_ROWS_MISSING" in run.query.stops for run in runs_with(SEEDS, Extras(aborts=1.0)))
    assert told > SEEDS // 20
