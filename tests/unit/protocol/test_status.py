"""What a start does, by the head and the micro-batch; and that a start, a task and an error do just that."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from spark_eos.errors import EosError
from spark_eos.protocol.checks import check_halts, stop_of
from spark_eos.protocol.head import Decision, Head, Marks, Missing, Successor, Unfinished, Verdict
from spark_eos.protocol.status import Start, Status, at_batch, at_end, halted, status
from spark_eos.protocol.task import Work, assign
from tests.unit.protocol.test_task import decided

COMMITTED, LOST = Verdict.COMMITTED, Verdict.LOST
NEW = Head("r", 3, (), 5)
ASSUMED = Decision.without_rows(5, None, "murmur2_random")
MARKS = {
    Status.ROWS_MISSING: Marks(missing=Missing("id", "t", 0, 5)),
    Status.RETIRED: Marks(successor=Successor("n", "/n")),
    Status.DROP_UNFINISHED: Marks(unfinished=Unfinished("q", "/c", "/c", 1, ())),
    Status.REPLAY_UNFINISHED: Marks(unfinished=Unfinished("q", "/c", "/n", 1, ("line",))),
    Status.OTHER_TOPIC: Marks(topic="only"),
}


@pytest.mark.parametrize(
    ("head", "start", "found"),
    [
        (None, Start(0), Status.WRITES),
        (None, Start(3), Status.HEAD_MISSING),
        (None, Start(3, begin_at=3), Status.WRITES),
        (None, Start(3, begin_at=2), Status.HEAD_MISSING),
        (None, Start(3, in_foreach_batch=True), Status.WRITES),
        (None, Start(None), Status.WRITES),
        (NEW, Start(3), Status.WRITES),
        (decided(6, COMMITTED), Start(7), Status.WRITES),
        (decided(6, None), Start(7), Status.WRITES),
        (decided(6, LOST), Start(7), Status.CHECKPOINT_AHEAD),
        (decided(7, COMMITTED, None), Start(7), Status.COMPLETES),
        (decided(7, COMMITTED, LOST), Start(7), Status.REPAIRS),
        (decided(8, COMMITTED), Start(7), Status.CHECKPOINT_BEHIND),
        (decided(8, LOST), Start(None), Status.REPAIRS),
        (decided(8, COMMITTED), Start(None), Status.COMPLETES),
        (replace(NEW, given_up=6), Start(7), Status.GIVEN_UP),
        (replace(NEW, given_up=7), Start(7), Status.WRITES),
        (replace(decided(6, COMMITTED), given_up=6), Start(7), Status.WRITES),
        (replace(NEW, given_up=6), Start(None), Status.GIVEN_UP),
        (replace(NEW, prefix="a"), Start(3, prefix="b"), Status.PREFIX_CHANGED),
        (replace(NEW, prefix="a", run=""), Start(3, prefix="b"), Status.WRITES),
        (replace(NEW, prefix="a", run="", earlier=("e",)), Start(3, prefix="b"), Status.PREFIX_CHANGED),
        (replace(decided(8, COMMITTED), earlier=("e",)), Start(7, run="e"), Status.SUPERSEDED),
        (replace(NEW, marks=MARKS[Status.OTHER_TOPIC]), Start(0, topic="only"), Status.WRITES),
        (replace(NEW, marks=MARKS[Status.OTHER_TOPIC]), Start(0), Status.WRITES),
        (replace(NEW, marks=MARKS[Status.OTHER_TOPIC]), Start(0, topic="another"), Status.OTHER_TOPIC),
        (replace(NEW, marks=Marks(topic="")), Start(0, topic="another"), Status.OTHER_TOPIC),
    ],
)
def test_what_a_start_does(head, start, found):
    """The first reason to stop counts; what is not known is not judged."""
    assert status(head, start) is found


@pytest.mark.parametrize(
    ("head", "done", "found"),
    [
        (None, None, None),
        (None, 0, Status.HEAD_MISSING),
        (NEW, None, None),
        (NEW, 0, Status.HEADS_LOST),
        (decided(6, COMMITTED), 5, None),
        (decided(6, LOST), 6, None),
        (decided(6, COMMITTED), 7, Status.HEADS_LOST),
        (replace(decided(6, COMMITTED), marks=MARKS[Status.ROWS_MISSING]), 7, Status.ROWS_MISSING),
        (replace(decided(6, COMMITTED), closed_by_operator=True), 7, Status.HEADS_LOST),
        (replace(decided(6), decision=ASSUMED), 7, Status.HEADS_LOST),
    ],
)
def test_the_end_of_a_query(head, done, found):
    """What Spark has noted, the ledger has to know."""
    assert at_end(head, done) is found


@pytest.mark.parametrize("found", MARKS)
def test_no_start_gets_past_a_mark(found):
    """Whatever is decided; its error has the state's name."""
    for head in (NEW, decided(6, LOST), decided(8, COMMITTED)):
        marked = replace(head, marks=MARKS[found])
        assert status(marked, Start(7, topic=None)) is found
        with pytest.raises(EosError, match=found.value):
            check_halts(marked, None)
    assert (halted(replace(NEW, marks=MARKS[found])) is not None) is (
        found in (Status.RETIRED, Status.DROP_UNFINISHED, Status.REPLAY_UNFINISHED)
    )


def test_errors_are_named_like_the_states():
    """All of them."""
    stops: list[tuple[Any, Head | None, Start]] = [
        (Status.HEAD_MISSING, None, Start(3)),
        (Status.PREFIX_CHANGED, replace(NEW, prefix="a"), Start(3, prefix="b")),
        (Status.GIVEN_UP, replace(NEW, given_up=6), Start(7)),
        (Status.CHECKPOINT_BEHIND, decided(8, COMMITTED), Start(7)),
        (Status.CHECKPOINT_AHEAD, decided(6, LOST), Start(7)),
        (Status.SUPERSEDED, replace(NEW, earlier=("e",)), Start(7, run="e")),
        *((found, replace(NEW, marks=marks), Start(7, topic=None)) for found, marks in MARKS.items()),
        (Status.HEADS_LOST, decided(5, COMMITTED), Start(7)),
    ]
    for found, head, start in stops:
        assert (at_end(head, 6) if found is Status.HEADS_LOST else status(head, start)) is found
        assert stop_of(found, head, start).condition == found.value
    assert {found for found, _, _ in stops} == {found for found in Status if found.stops}
    passed = stop_of(Status.CHECKPOINT_AHEAD, decided(6, LOST), Start(7, in_foreach_batch=True))
    assert passed.condition == Status.GIVEN_UP.value  # of a write within foreachBatch


def test_a_task_does_what_the_status_says():
    """For every last decision and micro-batch near it."""
    works = {Status.COMPLETES: Work.COUNT, Status.REPAIRS: Work.REPAIR}
    verdicts = [(), (COMMITTED,), (None,), (LOST,), (LOST, LOST)]
    for batch, of_each in itertools.product(range(3), verdicts):
        head = decided(1, *of_each)
        found = at_batch(head, batch)
        if found is Status.CHECKPOINT_BEHIND:
            with pytest.raises(EosError, match=found.value):
                assign(head, batch, 0, 0)
        else:
            assignment = assign(head, batch, 0, 0)
            assert assignment.work is works.get(found, Work.WRITE)
            assert (assignment.name is None) is (assignment.work is Work.COUNT)  # so nothing decided can be fenced
