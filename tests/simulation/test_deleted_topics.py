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


@pytest.mark.parametrize("two_phase", [False, True])
@pytest.mark.parametrize(
    ("at", "dies", "stops"),
    [
        ("commit.entered", True, ["died", "done"]),
        ("commit.decided", True, ["died", "EOS_DECISION_BROKEN", "done"]),
        ("commit.ended", True, ["died", "EOS_ROWS_MISSING"]),
        ("prepare.prepared", False, ["EOS_TRANSACTION_BROKEN", "done"]),
        ("commit.verified", False, ["EOS_ROWS_MISSING"]),
        ("commit.decided", False, ["EOS_ROWS_MISSING"]),
    ],
)
def test_a_topic_that_is_created_anew(at: str, dies: bool, stops: list[str], two_phase: bool) -> None:
    """At this point of the first micro-batch, where the driver dies, or lives. What is not decided is written again.
    What is decided and open is aborted as the error says, then written again, unless a driver is alive: coordinators
    commit by the topic's name. What was committed is gone, and nobody had seen it."""
    deleted, died = Fault(0, Strike.TOPIC_DELETED, AT_ONCE, at), Fault(0, Strike.DRIVER_DIES, 0, at)
    faults = (died, deleted) if dies else (deleted,)
    run = play(Schedule(Plan(rows=(4, 3), tasks=(2,), two_phase=(two_phase,)), faults))
    assert run.query.stops == stops
