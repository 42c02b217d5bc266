"""Two-phase commit on brokers that answer in bytes: who may not have it is told why, and who has it takes its time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_eos.protocol.names import ledger_name

from .faults import Fault, Kind, Schedule, Turn
from .play import PLAYS, Stage, staged
from .query import QUERY, Progress, start
from .two_phase import INIT, REFUSAL, TwoPhase

BOTH = frozenset({1, 2})
FETCH = 1
#: As many points as a run comes through that writes three micro-batches, or some more.
POINTS = 45


def played(schedule: Schedule) -> Stage:
    with staged(schedule) as stage:
        PLAYS["query"](stage)
        return stage


@pytest.mark.parametrize(
    ("plan", "level"),
    [
        (TwoPhase(mute=BOTH), 2),
        (TwoPhase(mute=frozenset({2})), 2),
        (TwoPhase(unset=frozenset({1})), 2),
        (TwoPhase(unset=BOTH, secret=True), 2),
        (TwoPhase(forbidden=True), 2),
        (TwoPhase(), 1),
    ],
)
def test_a_start_says_that_it_cannot_have_it(plan: TwoPhase, level: int) -> None:
    """And writes nothing; without the option, the query goes on."""
    with staged(Schedule(1, level=level, two_phase=plan)) as stage:
        progress = Progress(2)
        scene = replace(stage.scene, two_phase=plan)
        start(scene, progress)
        assert [stop.condition for stop in progress.stops] == [REFUSAL]
        assert not any(log.batches for log in stage.cluster.partitions.values())
        start(scene, progress)
        assert (progress.done, len(progress.stops)) == (2, 1)


@pytest.mark.parametrize(
    "plan",
    [TwoPhase(mute=BOTH, granted=3), TwoPhase(unset=BOTH, granted=3), TwoPhase(forbidden=True, granted=3)],
)
def test_a_query_from_which_it_is_withdrawn(plan: TwoPhase) -> None:
    """The task that is refused says so; what was decided by it before is settled without it."""
    assert REFUSAL in [stop.condition for stop in played(Schedule(1, two_phase=plan)).stops]


@pytest.mark.parametrize("nth", range(0, POINTS, 4))
def test_a_driver_that_sleeps_goes_on(nth: int) -> None:
    """For longer than plain transactions live, wherever it is: nothing has expired, and no start is needed."""
    stage = played(Schedule(1, turns=((nth, Turn.STALLS, 400.0),), two_phase=TwoPhase()))
    assert stage.stops == []
    assert {name for name, _ in stage.cluster.transactions.timed_out} <= {ledger_name("tx", QUERY)}


def test_a_repeated_request_for_a_producer_may_come_after_its_repetition() -> None:
    """It aborts what never expires, as the coordinator cannot tell. That is said, and a start writes it once more."""
    late, holds = Fault(INIT, 5, Kind.LATE, 9.0), Fault(FETCH, 4, Kind.SILENT)
    stage = played(Schedule(1, (late, holds), two_phase=TwoPhase()))
    assert [stop.condition for stop in stage.stops] == ["EOS_TRANSACTION_LOST"]
    assert stage.cluster.transactions.fenced_late == {"tx-q-1-0-1"}
