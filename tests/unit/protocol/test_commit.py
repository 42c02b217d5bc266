"""What a commit decides, without a ledger: the decision of a new micro-batch, and of one that is decided already."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_eos.errors import ProtocolStop
from spark_eos.kafka.transactions import NEVER_MS
from spark_eos.protocol.commit import _is_committed, _next_decision, _offsets_to_give, _problem
from spark_eos.protocol.head import Decision, Digest, Head, Pair, Probe, Verdict, Written
from spark_eos.protocol.ports import Description, Ports, State
from spark_eos.protocol.task import MicroBatch, TaskReport, Work


def written(partition: int, rows: int = 1, digest: int = 1, verdict: Verdict | None = None) -> Written:
    return Written(partition, Pair(f"id-{partition}", 1, 1), rows, digest, Probe("t", partition, 0), verdict)


def report(partition: int, rows: int = 1, digest: int = 1, by: Digest = Digest.ROWS) -> TaskReport:
    return TaskReport(Work.WRITE, partition, rows, digest, written(partition, rows, digest), digest_by=by)


HEAD = Head("r", 3, (), 5)


def test_a_decision_says_how_its_rows_were_digested_and_dealt():
    """By the tasks' word, and the user's choice or the query's default."""
    batch = MicroBatch("r", 0, (report(0), report(1)))
    decided = _next_decision(None, batch, replace(HEAD, partitioner="murmur2"), None)
    assert (decided.digest_by, decided.partitioner) == (Digest.ROWS, "murmur2")
    assert _next_decision(None, replace(batch, partitioner="fnv1a"), HEAD, None).partitioner == "fnv1a"


OFFSETS = {"t": {"0": 9}}


@pytest.mark.parametrize(("was", "now", "gets"), [(None, "g", True), ("g", "h", True), ("g", "g", False)])
def test_a_group_that_is_set_at_a_replay_gets_its_offsets(was, now, gets):
    """The micro-batch is decided, so that no later publication would be sure to come."""
    batch = MicroBatch("r", 7, (report(0),), OFFSETS, group=now)
    one = written(0, verdict=Verdict.COMMITTED)
    last = Decision(7, 0, 1, 1, 1, OFFSETS if was else None, (one,), group=was)
    mine = _next_decision(None, batch, replace(HEAD, decision=last), None)
    assert mine == (replace(last, offsets=OFFSETS, group=now) if gets else last)
    assert _offsets_to_give(batch, last) == (OFFSETS if gets else None)


@pytest.mark.parametrize("decided_by", [None, Digest.CHUNKS])
def test_executors_of_different_versions_stop_the_query(decided_by):
    """Their sums mean nothing together; nor does one that was made otherwise than the decision's."""
    others = Digest.CHUNKS if decided_by is None else Digest.ROWS
    batch = MicroBatch("r", 7, (report(0), report(1, by=others)))
    decision = None if decided_by is None else Decision(7, 0, 2, 2, 2, None, batch.written, digest_by=decided_by)
    with pytest.raises(ProtocolStop, match=r"EOS_MIXED_VERSIONS.*chunks, rows"):
        _next_decision(None, batch, replace(HEAD, decision=decision), None)


def test_what_never_expires_is_never_too_old():
    """A transaction of a month ago may be decided; its timeout only looks like 25 days."""
    now = 10**12
    ports = Ports(None, None, None, None, lambda: now, None, None)
    pair, month = report(0).written.pair, 31 * 24 * 3_600_000
    old = replace(report(0), began_ms=now - month)
    batch = MicroBatch("r", 0, (old,))
    assert _problem(ports, batch, old, pair, Description(pair, State.ONGOING, now - month, NEVER_MS)) is None
    expires = _problem(ports, batch, old, pair, Description(pair, State.ONGOING, now - month, NEVER_MS - 1))
    assert expires.condition == "EOS_TRANSACTION_TOO_OLD"


def test_a_decision_says_whether_its_transactions_expire():
    """A repair by a run without the option writes some that do: a setting that was withdrawn strands nobody."""
    batch = MicroBatch("r", 7, (report(0),), two_phase=True)
    decided = _next_decision(None, batch, HEAD, None)
    assert decided.two_phase
    lost = decided.judged({w.pair: Verdict.LOST for w in decided.written})
    for two_phase in (True, False):
        repaired = _next_decision(None, replace(batch, two_phase=two_phase), replace(HEAD, decision=lost), None)
        assert (repaired.rev, repaired.two_phase) == (1, two_phase)


LAST = Pair("id", 17, 32_766)


@pytest.mark.parametrize(
    ("described", "committed"),
    [
        ((LAST, State.PREPARE_COMMIT), True),
        ((LAST, State.COMPLETE_COMMIT), True),
        ((replace(LAST, epoch=32_767), State.COMPLETE_COMMIT), True),
        ((replace(LAST, producer_id=18, epoch=0), State.COMPLETE_COMMIT), True),
        ((replace(LAST, epoch=32_765), State.COMPLETE_COMMIT), False),
        ((replace(LAST, producer_id=18, epoch=0), State.COMPLETE_ABORT), False),
        ((LAST, State.ONGOING), False),
    ],
)
def test_a_commit_of_a_transaction_or_of_a_later_one_of_its_id(described: tuple[Pair, State], committed: bool):
    """After the last epoch, an end takes the first one of another producer id."""
    assert _is_committed(Description(*described, 0, 1000), LAST) is committed
