"""What a commit decides, without a ledger: the decision of a new micro-batch, and of one that is decided already."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_eos.errors import ProtocolStop
from spark_eos.protocol.batch import MicroBatch, _next_decision
from spark_eos.protocol.head import Decision, Digest, Head, Pair, Probe, Verdict, Written
from spark_eos.protocol.task import TaskReport, Work


def written(partition: int, rows: int = 1, digest: int = 1, verdict: Verdict | None = None) -> Written:
    return Written(partition, Pair(f"id-{partition}", 1, 1), rows, digest, Probe("t", partition, 0), verdict)


def report(partition: int, rows: int = 1, digest: int = 1, by: Digest = Digest.MIXED) -> TaskReport:
    return TaskReport(Work.WRITE, partition, rows, digest, written(partition, rows, digest), digest_by=by)


HEAD = Head("r", 3, (), 5)


def test_a_decision_says_how_its_rows_were_digested_and_dealt():
    """By the tasks' word, and the user's choice or the query's default."""
    batch = MicroBatch("r", 0, (report(0), report(1)))
    decided = _next_decision(None, batch, replace(HEAD, partitioner="murmur2"))
    assert (decided.digest_by, decided.partitioner) == (Digest.MIXED, "murmur2")
    assert _next_decision(None, replace(batch, partitioner="fnv1a"), HEAD).partitioner == "fnv1a"


@pytest.mark.parametrize("decided_by", [None, Digest.CRC32C])
def test_executors_of_different_versions_stop_the_query(decided_by):
    """Their sums mean nothing together; nor does one that was made otherwise than the decision's."""
    others = Digest.CRC32C if decided_by is None else Digest.MIXED
    batch = MicroBatch("r", 7, (report(0), report(1, by=others)))
    decision = None if decided_by is None else Decision(7, 0, 2, 2, 2, None, batch.written, digest_by=decided_by)
    with pytest.raises(ProtocolStop, match="crc32c, crc32c-mix64") as caught:
        _next_decision(None, batch, replace(HEAD, decision=decision))
    assert caught.value.condition == "EOS_MIXED_VERSIONS"
