"""Repairs by a replay that deals its rows to tasks in another way."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.errors import ProtocolStop
from spark_eos.kafka.transactions import FENCING_END
from spark_eos.protocol.commit import _next_decision
from spark_eos.protocol.head import DIGEST_BITS, Decision, Head, Pair, Probe, Verdict, Written
from spark_eos.protocol.replay import differences_of_tasks, tasks_with_lost_rows
from spark_eos.protocol.task import MicroBatch, TaskReport, Work, assign
from tests.support.judges.conditions import raises

Rows = list[int]
HASHES = [random.Random(n).getrandbits(DIGEST_BITS) for n in range(100)]


def digest(rows: Rows) -> int:
    return sum(HASHES[row] for row in rows) % (1 << DIGEST_BITS)


def decided(tasks: list[Rows], lost: set[int], **more: object) -> Decision:
    """A decision on these tasks' rows; those in ``lost`` were lost, the others are visible."""
    written = tuple(
        Written(p, Pair(f"id-{p}", 1, 1), len(rows), digest(rows), Probe("t", 0, p), _verdict(p in lost))
        for p, rows in enumerate(tasks)
        if rows
    )
    every = [row for rows in tasks for row in rows]
    decision = Decision(7, 0, len(tasks), len(every), digest(every), None, written)
    return replace(decision, **more)


def _verdict(lost: bool) -> Verdict:
    return Verdict.LOST if lost else Verdict.COMMITTED


def replay(tasks: list[Rows], head: Head) -> MicroBatch:
    """What tasks with these rows report under the head."""
    reports = []
    for p, rows in enumerate(tasks):
        work = assign(head, 7, p, 0)
        wrote = work.work is Work.REPAIR and rows
        written = Written(p, Pair(f"new-{p}", 2, 1), len(rows), digest(rows), Probe("t", 0, 50 + p)) if wrote else None
        reports.append(TaskReport(work.work, p, len(rows), digest(rows), written, digest_by=work.digest_by))
    return MicroBatch("r", 7, tuple(reports))


@dataclass
class Books:
    """The ledger, taken, and what was aborted."""

    published: list[Head] = field(default_factory=list)
    aborted: set[Pair] = field(default_factory=set)

    def publish(self, head: Head, offsets: object = None) -> None:
        self.published.append(head)

    @property
    def ports(self) -> SimpleNamespace:
        return SimpleNamespace(coordinator=self, retrying=lambda: iter([None]))

    def endtxn_version(self) -> int:
        return FENCING_END

    def end(self, pairs: dict[Pair, int], *, commit: bool) -> dict[Pair, str]:
        assert not commit
        self.aborted |= pairs.keys()
        return dict.fromkeys(pairs, "done")


DEALT_OTHERWISE = [
    pytest.param([[3, 4], [0, 1, 2], [5]], (1,), id="the same tasks under other numbers"),
    pytest.param([[0], [3, 4, 5], [1, 2]], (0, 2), id="in smaller parts"),
    pytest.param([[3, 4], [2, 5], [0], [1]], None, id="with rows that are visible"),
]


@pytest.mark.parametrize(("tasks", "others"), DEALT_OTHERWISE)
def test_the_tasks_that_have_the_lost_rows_write_them_in_the_next_replay(tasks, others):
    """The first replay finds out which they are; with nothing changed, the second repairs the micro-batch."""
    head = Head("r", 3, (), 5, decided([[0, 1, 2], [3, 4], [5]], lost={0}))
    books = Books()
    first = replay(tasks, head)
    with raises("EOS_REPAIR_NEEDS_SAME_TASKS" if others is None else "EOS_REPAIR_BY_OTHER_TASKS") as caught:
        _next_decision(books.ports, first, head, books)
    assert books.aborted == first.pairs
    if others is None:
        return
    assert caught.value.restart_helps
    (head,) = books.published
    second = replay(tasks, head)
    assert {w.partition for w in second.written} == set(others)
    repaired = _next_decision(books.ports, second, head, books)
    assert (repaired.rev, repaired.lost, repaired.rewrite) == (1, (), None)
    assert repaired.pairs == second.pairs | {Pair("id-1", 1, 1), Pair("id-2", 1, 1)}


def test_the_stop_says_what_differs():
    """Task by task, by the counts of rows; and where these are the same, that the rows are not."""
    head = Head("r", 3, (), 5, decided([[0, 1], [2, 3], [4, 5]], lost={0, 1}))
    with pytest.raises(ProtocolStop) as caught:
        _next_decision(Books().ports, replay([[0, 4], [1, 2, 3], [5]], head), head, Books())
    assert "3 tasks then, 3 now" in caught.value.message
    assert "task 0 has as many rows as before (2), but different ones" in caught.value.message
    assert "task 1 had 2 rows and has 3 now" in caught.value.message
    assert caught.value.parameters["tasks"] == 3


@given(st.data())
def test_only_tasks_with_just_the_lost_rows_are_chosen(data):
    """However rows are dealt then and now: what is chosen writes each lost row once, and no other one."""
    then, now = (data.draw(st.lists(st.integers(0, 3), min_size=12, max_size=12)) for _ in range(2))
    before, after = ([[row for row, task in enumerate(deal) if task == p] for p in range(4)] for deal in (then, now))
    lost = data.draw(st.sets(st.sampled_from([p for p, rows in enumerate(before) if rows]), min_size=1))
    decision = decided(before, lost)
    batch = replay(after, Head("r", 3, (), 5, decision))
    chosen = tasks_with_lost_rows(decision, batch.reports)
    gone = sorted(row for p in lost for row in before[p])
    fitting = [p for p, rows in enumerate(after) if rows and set(rows) <= set(gone)]
    if chosen is None:
        assert sorted(row for p in fitting for row in after[p]) != gone
    else:
        assert sorted(row for p in chosen for row in after[p]) == gone


def test_tasks_that_are_as_they_were_leave_the_choice_to_the_others():
    """However many there are: only those with other rows may have the lost ones."""
    then = [[0, 1], *([row] for row in range(2, 50))]
    decision = decided(then, lost={0})
    now = replay([*then[1:], [0], [1]], Head("r", 3, (), 5, decision))
    assert tasks_with_lost_rows(decision, now.reports) == (48, 49)


def test_of_tasks_with_equal_rows_as_many_are_chosen_as_were_lost():
    """Two of three; the third one's rows are visible."""
    decision = decided([[0], [0], [0]], lost={0, 1})
    now = replay([[0], [0], [0]], Head("r", 3, (), 5, decision))
    assert tasks_with_lost_rows(decision, now.reports) == (0, 1)


def test_a_task_that_is_no_longer_there_has_no_rows_now():
    """In what the stop says."""
    decision = decided([[0], [1, 2]], lost={1})
    now = replay([[0]], Head("r", 3, (), 5, decision))
    assert "task 1 had 2 rows and has 0 now" in differences_of_tasks(decision, now.reports)
