"""Option ``topic`` changes from one start to the next: what is decided stays where it is, or the query stops."""

from __future__ import annotations

import pytest

from .plan import OWN_TOPIC, TOPIC, Plan
from .play import play
from .schedule import Schedule
from .world import Fault, Strike


@pytest.mark.parametrize(
    ("at", "copy", "lost", "stops", "moved"),
    [
        # What is not decided goes to the new topic, and so does all that follows
        ("commit.verified", False, False, [], {1, 2}),
        ("commit.verified", True, False, [], {1, 2}),
        # The replay of what is decided stops until the topic is put back; lost or not
        ("commit.decided", False, False, ["EOS_REPLAY_DIVERGED"], set()),
        ("commit.decided", False, True, ["EOS_REPLAY_DIVERGED"], set()),
        # Of a copy, nothing is read again that is not lost: the replay is equal by its ranges
        ("commit.decided", True, False, [], {2}),
        # What is written again is digested with its topic
        ("commit.decided", True, True, ["EOS_REPAIR_SOURCE_CHANGED"], set()),
    ],
)
def test_a_start_that_writes_to_another_topic(
    at: str, copy: bool, lost: bool, stops: list[str], moved: set[int]
) -> None:
    """After a driver that has died there in its second micro-batch: how the query ends, each time, and which
    micro-batches are in which topic."""
    died = Fault(0, Strike.DRIVER_DIES, 0, at, Fault(0, Strike.PAUSE, 70_000, "task: ledger ") if lost else None)
    plan = Plan(rows=(4, 3, 4), tasks=(2,), topics=(TOPIC, OWN_TOPIC), copy=copy)
    run = play(Schedule(plan, (Fault(0, Strike.STALL, 1, "commit log", died),)))
    found: dict[str, set[int]] = {TOPIC: set(), OWN_TOPIC: set()}
    for (topic, _), log in run.cluster.logs.items():
        if topic in found:
            found[topic] |= {record.payload[0] for record in log.records if record.visible}
    assert run.query.stops == ["died", *stops, "done"]
    assert found == {TOPIC: {0, 1, 2} - moved, OWN_TOPIC: moved}
