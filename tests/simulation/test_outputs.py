"""Output topics whose rows are taken, or that are others: what is gone is gone, and nothing else is, or is missing in
silence.

Topics are deleted, and created anew; partitions lose their newest records by an unclean election; option ``topic``
changes from one start to the next.
"""

from __future__ import annotations

import pytest

from .plan import OWN_TOPIC, TOPIC, Plan
from .play import Run, play, runs_with
from .schedule import Extras, Schedule
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


SEEDS = 100
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
