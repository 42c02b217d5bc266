"""What errors say about a new checkpoint: from where, or why not; and decided offsets as text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_eos.errors import Diverged, phrase
from spark_eos.kafka.partitioners import DEFAULT_PARTITIONER
from spark_eos.protocol.checks import (
    OFFSETS_CHARS,
    checkpoint_behind,
    offsets_text,
    stop_of,
    superseded,
)
from spark_eos.protocol.head import Decision, ForeachBatchWrite, Head, Offsets, Pair, Probe, Verdict, Written
from spark_eos.protocol.replay import compare
from spark_eos.protocol.status import Start, Status
from spark_eos.protocol.task import MicroBatch, TaskReport, Work

COMMITTED, LOST = Verdict.COMMITTED, Verdict.LOST
ENDS: Offsets = {"flights": {"0": 23, "1": 5}}
NEVER = "not begin with a new one"


def decided(*verdicts: Verdict | None, offsets: Offsets | None = ENDS, batch: int = 7) -> Decision:
    """A decision with a transaction for each verdict."""
    written = tuple(
        Written(p, Pair(f"id-{p}", 1, 1), 1, 1, Probe("t", p, 0), verdict) for p, verdict in enumerate(verdicts)
    )
    return Decision(batch, 0, len(written), len(written), 1, offsets, written)


# Offsets as text


def test_offsets_are_what_the_option_takes():
    """Topics by name, partitions by number; the option's own parser reads them."""
    assert offsets_text({"b": {"10": 3, "9": 1}, "a": {"0": 0}}) == '{"a": {"0": 0}, "b": {"9": 1, "10": 3}}'


def test_offsets_of_very_many_partitions_are_counted():
    """An error's text is to be read."""
    few: Offsets = {"flights": {str(p): 10**12 for p in range(150)}}
    many: Offsets = {"flights": {str(p): 10**12 for p in range(10_000)}}
    assert json.loads(offsets_text(few)) == few
    assert offsets_text(many) == "those of 10000 partitions, too many to print"
    assert len(str(checkpoint_behind(decided(COMMITTED, offsets=few), 3))) < OFFSETS_CHARS + 1_000


def test_offsets_that_are_too_many_to_print_are_compared_all_the_same():
    """Their text is equal."""
    was, now = ({"flights": dict.fromkeys(map(str, range(10_000)), end)} for end in (1, 2))
    last = decided(COMMITTED, offsets=was)
    compare(MicroBatch("r", 7, (), was), Decision(7, 0, 0, 0, 0, was, last.written))
    with pytest.raises(Diverged, match="offsets: decided those of 10000 partitions"):
        compare(MicroBatch("r", 7, (), now), Decision(7, 0, 0, 0, 0, was, last.written))


# A checkpoint older than the output, or a replay that differs


@pytest.mark.parametrize(
    ("verdicts", "waits"),
    [
        ((COMMITTED, COMMITTED), ""),
        ((COMMITTED, LOST, None), "1 of the 3 transactions of micro-batch 7 were lost"),
        ((COMMITTED, None), "still to be committed"),
    ],
)
def test_a_new_checkpoint_is_recommended_where_all_rows_are_visible(verdicts, waits):
    """Before the decision, and in its place with other offsets. Else the group is past rows that nobody sees, and only
    the right replay writes them again."""
    behind = checkpoint_behind(decided(*verdicts), 3)
    with pytest.raises(Diverged) as diverged:
        compare(MicroBatch("r", 7, (), {"flights": {"0": 24}}), decided(*verdicts))
    for error in (behind, diverged.value):
        assert (phrase("from_group") in error.hint) is not bool(waits)
        assert (NEVER in error.hint) is bool(waits) and waits in error.hint
    assert behind.parameters["offsets"] == ENDS
    assert ("decided and made visible" in diverged.value.message) is not bool(waits)


def test_behind_without_a_group():
    """The ledger has no offsets then; the offset log has."""
    error = checkpoint_behind(decided(COMMITTED, offsets=None), 3)
    assert "offsets/7 of the checkpoint that decided it" in error.message


def test_a_micro_batch_that_was_never_decided_here():
    """A ledger that was begun behind it does not know whether its rows are visible, nor where its input ended."""
    begun = Decision.without_rows(7, None, DEFAULT_PARTITIONER)
    behind = checkpoint_behind(begun, 3)
    with pytest.raises(Diverged) as diverged:
        compare(MicroBatch("r", 7, (TaskReport(Work.COUNT, 0, 1, 1, None),), ENDS), begun)
    for error in (behind, diverged.value):
        assert "visible" not in str(error)
        assert "continues exactly" in str(error) and "compare the output with the input" in str(error)


# The others


def test_another_prefix():
    """The old one must be drained under the old prefix first."""
    error = stop_of(Status.PREFIX_CHANGED, Head("r", 1, (), 5, prefix="one"), Start(0, prefix="other"))
    assert error.condition == "EOS_LEDGER_PREFIX_CHANGED"
    assert "with the old prefix; then begin with a new checkpoint" in error.hint and phrase("from_group") in error.hint


def test_what_was_started_twice_is_named():
    """An ingest has neither checkpoint nor job."""
    head = Head("r2", 3, (), 5, write=ForeachBatchWrite("ingest invoices", "t"))
    error = superseded("r1", head)
    assert error.message == "Run r1 of ingest invoices into t was replaced by run r2 (generation 3)."
    assert "started twice under the same name" in error.hint and "checkpoint" not in error.hint
    assert "The same checkpoint" in superseded("r1", replace(head, write=None)).hint
