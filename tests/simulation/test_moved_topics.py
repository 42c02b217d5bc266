"""Option ``topic`` changes from one start to the next: what is decided stays where it is, or the query stops."""

from __future__ import annotations

import pytest

from .plan import OWN_TOPIC, TOPIC, Plan
from .play import play
from .schedule import Schedule
from .world import Fault, Strike

DIVERGED = "EOS_REPLAY_DIVERGED"
CHANGED = "EOS_REPAIR_SOURCE_CHANGED"


def _ends(at: str, *, copy: bool = False, lost: bool = False) -> tuple[list[str], dict[str, set[int]]]:
    """How a query ends, each time, whose second start writes to another topic, after its driver has died there in its
    second micro-batch; and which micro-batches are in which topic."""
    died = Fault(0, Strike.DRIVER_DIES, 0, at, Fault(0, Strike.PAUSE, 70_000, "task: ledger ") if lost else None)
    plan = Plan(rows=(4, 3, 4), tasks=(2,), topics=(TOPIC, OWN_TOPIC), copy=copy)
    run = play(Schedule(plan, (Fault(0, Strike.STALL, 1, "commit log", died),)))
    found: dict[str, set[int]] = {TOPIC: set(), OWN_TOPIC: set()}
    for (topic, _), log in run.cluster.logs.items():
        if topic in found:
            found[topic] |= {record.payload[0] for record in log.records if record.visible}
    return run.query.stops, found


@pytest.mark.parametrize("copy", [False, True])
def test_what_is_not_decided_goes_to_the_new_topic(copy: bool) -> None:
    """And so does all that follows."""
    assert _ends("commit.verified", copy=copy) == (["died", "done"], {TOPIC: {0}, OWN_TOPIC: {1, 2}})


@pytest.mark.parametrize("lost", [False, True])
def test_what_is_decided_needs_its_topic(lost: bool) -> None:
    """Its replay stops, until the topic is put back; lost or not."""
    assert _ends("commit.decided", lost=lost) == (["died", DIVERGED, "done"], {TOPIC: {0, 1, 2}, OWN_TOPIC: set()})


def test_ranges_that_are_decided_stay_where_they_are() -> None:
    """Of a copy, nothing is read again that is not lost: the replay is equal by its ranges."""
    assert _ends("commit.decided", copy=True) == (["died", "done"], {TOPIC: {0, 1}, OWN_TOPIC: {2}})


def test_ranges_that_are_lost_need_their_topic() -> None:
    """What is written again is digested with it."""
    stops, found = _ends("commit.decided", copy=True, lost=True)
    assert (stops, found) == (["died", CHANGED, "done"], {TOPIC: {0, 1, 2}, OWN_TOPIC: set()})
