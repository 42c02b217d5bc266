"""Output topics that are deleted, and created anew: what was in them is gone with them, and nothing else is, or is
missing in silence. Nor is what brokers that have just started have not heard of."""

from __future__ import annotations

import pytest

from .plan import Plan
from .play import play
from .schedule import Schedule
from .world import Fault, Strike

#: By what the modelled deletion leaves: the topic is created anew at once.
AT_ONCE = 60


def _stops(at: str, *, two_phase: bool) -> list[str]:
    """How a query ends, each time, whose topic is deleted at this point of its first micro-batch, and whose driver dies
    then."""
    faults = Fault(0, Strike.DRIVER_DIES, 0, at), Fault(0, Strike.TOPIC_DELETED, AT_ONCE, at)
    return play(Schedule(Plan(rows=(4, 3), tasks=(2,), two_phase=(two_phase,)), faults)).query.stops


@pytest.mark.parametrize("two_phase", [False, True])
def test_a_topic_that_is_created_anew(two_phase: bool) -> None:
    """What is not decided is written again. What is decided and open is aborted as the error says, then written again;
    what was committed is gone, and nobody had seen it."""
    assert _stops("commit.entered", two_phase=two_phase) == ["died", "done"]
    assert _stops("commit.decided", two_phase=two_phase) == ["died", "EOS_DECISION_BROKEN", "done"]
    assert _stops("commit.ended", two_phase=two_phase) == ["died", "EOS_ROWS_MISSING"]


@pytest.mark.parametrize(
    ("at", "stops"),
    [
        ("prepare.prepared", ["EOS_TRANSACTION_BROKEN", "done"]),
        ("commit.verified", ["EOS_ROWS_MISSING"]),
        ("commit.decided", ["EOS_ROWS_MISSING"]),
    ],
)
def test_a_topic_that_is_created_anew_while_the_driver_lives(at: str, stops: list[str]) -> None:
    """Coordinators commit by the topic's name."""
    schedule = Schedule(Plan(rows=(4, 3), tasks=(2,)), (Fault(0, Strike.TOPIC_DELETED, AT_ONCE, at),))
    assert play(schedule).query.stops == stops
