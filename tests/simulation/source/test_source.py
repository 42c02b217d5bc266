"""The source under schedules of what happens to its topics, drawn by chance.

``SPARK_EOS_SIMULATION_SCHEDULES`` says how many (500 unless told otherwise), ``SPARK_EOS_SIMULATION_SEED`` where to
begin. A failure prints its seed, and the smallest schedule on the way down that still fails, with all that happens.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from tests.simulation.world import Violation

from .__main__ import played
from .cluster import Event, Fault
from .play import play
from .query import Start, Trigger
from .schedule import Schedule, draw

SCHEDULES = int(os.environ.get("SPARK_EOS_SIMULATION_SCHEDULES", "500"))
FIRST_SEED = int(os.environ.get("SPARK_EOS_SIMULATION_SEED", "0"))
#: Rows of a, b and c, in six partitions.
ALL = (("subscribe", "a,b,c"), ("startingOffsets", "earliest"))
TOPICS = (("a", 5), ("b", 7), ("c", 3))
QUIET = Schedule(ALL, (Start(),), TOPICS)


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("old_spark", [False, True])
def test_a_quiet_query_takes_everything(old_spark: bool, by_id: bool) -> None:
    """Micro-batch 0 records the begin; the next one takes all, unless there may be no next one."""
    run = play(replace(QUIET, old_spark=old_spark, by_id=by_id))
    assert run.query.written[0 if old_spark else 1] == [row.number for row in run.cluster.rows.values()]
    assert run.query.losses == []


def test_the_same_schedule_runs_the_same_way() -> None:
    """A schedule decides everything: a failure can be run again."""
    for seed in range(20):
        first, second = (play(draw(random.Random(seed))).cluster.trace for _ in range(2))
        assert first == second


@pytest.mark.parametrize("trigger", list(Trigger), ids=lambda trigger: trigger.name)
@pytest.mark.parametrize("change", [Event.WRITE, Event.RECREATE, Event.CUT, Event.EXPIRE], ids=lambda event: event.name)
def test_a_driver_may_die_anywhere(change: Event, trigger: Trigger) -> None:
    """Before and after a change of a topic, at each step of three micro-batches."""
    starts = (Start(trigger, fail=False),) * 3
    limited = (*ALL, ("maxOffsetsPerTrigger", "7"))
    faults = (Fault(13, change, 3 * 43), Fault(24, Event.WRITE, 5))
    _at_each(range(1, 36), Event.CRASH, 0, Schedule(limited, starts, TOPICS, faults))


def _at_each(steps: range, event: Event, size: int, schedule: Schedule) -> None:
    """It happens at any of these steps, and nothing breaks by that."""
    for step in steps:
        try:
            play(replace(schedule, faults=(*schedule.faults, Fault(step, event, size))))
        except Violation as violation:
            pytest.fail(f"step {step}: {violation}")


def test_a_topic_that_is_hidden_while_another_one_is_looked_for_is_there() -> None:
    """Of a pinned run: whichever answer, of those that look for the deleted topic, lacks the other one for a moment."""
    starts = (
        Start(fail=False, batches=2),
        Start(fail=False, batches=1),
        Start(Trigger.AVAILABLE_NOW, fail=False, batches=1),
    )
    options = (("subscribe", "a,b,c"), ("startingOffsets", "latest"), ("maxOffsetsPerTrigger", "1"))
    gone = (Fault(15, Event.WRITE, 50), Fault(34, Event.RECREATE, 141), Fault(46, Event.DELETE, 14))
    _at_each(range(47, 80), Event.HIDE, 70, Schedule(options, starts, (("a", 8), ("b", 6), ("c", 11)), gone))


@pytest.mark.parametrize("by_id", [False, True])
def test_a_topic_that_is_hidden_while_a_replay_looks_for_another_one_is_there(by_id: bool) -> None:
    """Whichever answer lacks it, of those that look for the deleted topic on the driver, or in a task."""
    starts = (Start(fail=False, batches=2), Start(fail=False, batches=1))
    gone = (
        Fault(12, Event.WRITE, 63),
        Fault(12, Event.WRITE, 126),
        Fault(18, Event.CRASH),
        Fault(19, Event.RECREATE, 58),
    )
    _at_each(range(20, 60), Event.HIDE, 201, Schedule(ALL, starts, TOPICS, gone, by_id=by_id))


@pytest.mark.parametrize("by_id", [False, True])
def test_rows_that_a_replay_takes_from_a_cut_log_are_not_taken_again(by_id: bool) -> None:
    """They were written after the ends of the run were pinned."""
    options = (("subscribePattern", "[abc]"), ("startingOffsets", "earliest"))
    starts = (Start(Trigger.AVAILABLE_NOW, batches=200), Start(Trigger.AVAILABLE_NOW, False, batches=200))
    faults = (Fault(11, Event.CUT, 139), Fault(24, Event.RECREATE, 45), Fault(28, Event.WRITE, 77))
    run = play(Schedule(options, starts, (("a", 12), ("b", 8), ("c", 13)), faults, by_id=by_id))
    assert sum(rows.count(39) for rows in run.query.written.values()) == 1


def test_schedules_from_seeds() -> None:
    """Each visible row is taken once, in order, or is in a loss that is reported."""
    for seed in range(FIRST_SEED, FIRST_SEED + SCHEDULES):
        played(seed)
