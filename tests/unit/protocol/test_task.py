"""What a task has to do under a head, and whether the broker holds what it wrote."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from spark_eos.errors import EosError, ProtocolStop
from spark_eos.kafka.transactions import NEVER_MS
from spark_eos.protocol.head import Decision, Digest, Head, Pair, Probe, Verdict, Written
from spark_eos.protocol.names import TaskId
from spark_eos.protocol.ports import Description, State
from spark_eos.protocol.task import (
    Assignment,
    Work,
    assign,
    check_begins,
    check_ends,
    check_held,
    check_owner,
    free_name,
)
from tests.support.judges.conditions import raises


def decided(batch: int, *verdicts: Verdict | None, rev: int = 0) -> Head:
    """A head whose last decision has a transaction of each partition, with these verdicts."""
    written = tuple(
        Written(p, Pair(f"id-{p}", 1, 1), 1, 1, Probe("t", p, 0), verdict) for p, verdict in enumerate(verdicts)
    )
    return Head("r", 3, (), 5, Decision(batch, rev, len(verdicts), len(verdicts), 1, None, written))


COMMITTED, LOST = Verdict.COMMITTED, Verdict.LOST


def test_a_batch_after_the_last_decision_is_written():
    """Under the run's generation, in the batch's slot, under the attempt's own name."""
    for head in (Head("r", 3, (), 5), decided(6, COMMITTED)):
        assert assign(head, 7, 2, attempt=0) == Assignment(Work.WRITE, TaskId(3, 2, 1))
        assert assign(head, 8, 2, attempt=4) == Assignment(Work.WRITE, TaskId(3, 2, 0, 4))


def test_a_replay_digests_and_deals_as_the_decision_did():
    """Whatever this version, or the user, would do now; a new micro-batch goes by that, else by what the query had when
    it began, as a key would be on two partitions otherwise."""
    head = decided(7, COMMITTED, LOST)
    by = {"digest_by": Digest.CHUNKS, "partitioner": "murmur2"}
    for partition in (0, 1):
        work = assign(head, 7, partition, attempt=0, **by)
        assert (work.digest_by, work.partitioner) == (Digest.ROWS, "murmur2_random")
    new = assign(head, 8, 0, attempt=0, **by)
    assert (new.digest_by, new.partitioner) == (Digest.CHUNKS, "murmur2")
    assert assign(Head("r", 3, (), 5, partitioner="fnv1a"), 0, 0, attempt=0).partitioner == "fnv1a"


def test_only_what_was_lost_is_written_again():
    """Under the next revision's name. Where all of it was lost, nothing binds it to the tasks that there were."""
    head = decided(7, COMMITTED, LOST, COMMITTED, rev=2)
    assert [assign(head, 7, p, attempt=0).work for p in range(4)] == [Work.COUNT, Work.REPAIR, Work.COUNT, Work.COUNT]
    assert assign(head, 7, 1, attempt=0).name == TaskId(3, 1, 1, rev=3)
    assert {assign(decided(7, LOST, LOST), 7, p, attempt=0).work for p in range(9)} == {Work.REPAIR}


@pytest.mark.parametrize(
    ("head", "work", "stops"),
    [
        (decided(6, COMMITTED), Work.WRITE, None),
        (decided(7, None), Work.WRITE, "EOS_ATTEMPT_LATE"),  # the commit that decided has not seen it
        (decided(8, None), Work.WRITE, "EOS_ATTEMPT_LATE"),
        (decided(7, LOST), Work.REPAIR, None),
        (None, Work.WRITE, "EOS_LEDGER_HEAD_MISSING"),
        (replace(decided(6, COMMITTED), run="other"), Work.WRITE, "EOS_SUPERSEDED"),  # nor has whoever replaced the run
    ],
)
def test_an_attempt_that_nobody_has_seen_aborts_itself(head: Head | None, work: Work, stops: str | None):
    """Of micro-batch 7 of run "r", after its last row: nobody else can have aborted it."""
    with nullcontext() if stops is None else pytest.raises(EosError, match=stops):
        check_owner(head, "r", 7, work)


OWN = Pair("id", 17, 3)
HELD = Description(OWN, State.ONGOING, 0, 1000)


@pytest.mark.parametrize(
    "described",
    [
        None,
        *(replace(HELD, state=state) for state in State if state is not State.ONGOING),
        replace(HELD, pair=Pair("id", 17, 4)),
        replace(HELD, pair=Pair("id", 18, 3)),
    ],
)
def test_what_the_broker_holds_is_what_was_written(described):
    """Same id, producer id and epoch, and still open. A newer owner of the same id may be Ongoing, too."""
    check_held(OWN, HELD)
    with raises("EOS_TRANSACTION_NOT_HELD", "producer id 17, epoch 3"):
        check_held(OWN, described)


def test_with_two_phase_commit_only_what_never_expires_is_handed_over():
    """A coordinator that took the request for another one would let a decided transaction expire."""
    check_held(OWN, replace(HELD, timeout_ms=NEVER_MS), two_phase=True)
    with pytest.raises(ProtocolStop, match=r"EOS_TWO_PHASE_EXPIRES.*1000 ms"):
        check_held(OWN, HELD, two_phase=True)


BEGINS, LASTS = {("t", 0): 7, ("t", 1): 0}, {("t", 0): 4, ("t", 1): 0}


def test_a_transaction_is_what_the_task_has_written():
    """It begins in each partition with the first record, and ends with the last one, as far as both sides know; other
    partitions do not matter."""
    check_begins(OWN, BEGINS, {**BEGINS, ("u", 0): 9})
    check_ends(OWN, LASTS, [Probe("t", 0, 7, 4), Probe("t", 1, 0), Probe("u", 0, 9, 9)])


@pytest.mark.parametrize(
    ("begins", "last", "said"),
    [
        ({**BEGINS, ("t", 0): 9}, 4, "somebody has aborted it"),
        ({("t", 0): 7}, 4, "somebody has aborted it"),
        ({}, 4, "somebody has aborted it"),
        (BEGINS, 3, "but the transaction ends with"),
        (BEGINS, 0, "but the transaction ends with"),
    ],
)
def test_a_transaction_that_has_lost_rows_is_not_handed_over(begins, last, said):
    """The first ones, where it has begun once more, which the coordinator describes as if nothing were; or the last
    ones, by an unclean election."""
    with raises("EOS_TRANSACTION_NOT_HELD", said):
        check_begins(OWN, BEGINS, begins)
        check_ends(OWN, LASTS, [Probe("t", 0, 7, last)])


class Coordinator:
    """Has these transactions open; everything else is unknown to it."""

    def __init__(self, *ongoing: str) -> None:
        self._ongoing = ongoing

    def describe(self, ids):
        pairs = {name: Pair(name, 1, 1) for name in ids if name in self._ongoing}
        return {name: Description(pair, State.ONGOING, 0, 60_000) for name, pair in pairs.items()}


def test_a_name_that_is_open_or_decided_is_not_taken():
    """To take it would abort what is open under it; once it has its verdict, nothing is at stake."""

    def name(attempt: str = "") -> str:
        return f"p-q-3-0-1{attempt}"

    task, nothing = TaskId(3, 0, 1), Head("r", 3, (), 5)
    assert free_name("p", "q", task, nothing, Coordinator()) == name()
    assert free_name("p", "q", task, nothing, Coordinator(name(), name("-1"))) == name("-2")
    for verdict, free in ((None, name("-1")), (Verdict.COMMITTED, name())):
        written = Written(0, Pair(name(), 1, 1), 1, 1, Probe("t", 0, 0), verdict)
        head = replace(nothing, decision=Decision(1, 0, 1, 1, 1, None, (written,)))
        assert free_name("p", "q", task, head, Coordinator()) == free
