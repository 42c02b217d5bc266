"""What a start would do, by what checkpoint and ledger hold; and the lines of the offset log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from spark_eos.ops.checkpoint.heads import OwnHead
from spark_eos.ops.checkpoint.logs import BUILT_IN, OTHER, OURS, merged, source_of, topic_twice
from spark_eos.ops.checkpoint.report import as_json, as_text
from spark_eos.ops.checkpoint.showing import InputPartition, Shown
from spark_eos.protocol.head import (
    Decision,
    EachSink,
    Head,
    Marks,
    Pair,
    Probe,
    Successor,
    Unfinished,
    Verdict,
    Written,
)


def decision(batch: int, *verdicts: Verdict | None) -> Decision:
    written = tuple(Written(p, Pair(f"i{p}", 1, 1), 1, 1, Probe("t", p, 0), v) for p, v in enumerate(verdicts))
    return Decision(batch, 0, len(written), len(written), 1, {"t": {"0": 9}}, written, group="g")


def shown(planned: Sequence[int], done: Sequence[int], *heads: OwnHead) -> Shown:
    place = InputPartition("t", 0, 9, None, 0, 12)
    return Shown("/c", "q" if planned else None, planned, done, False, ["eos-kafka"], [place], ["u"], heads, [])


def own(last: Decision | None = None, sink: str | None = None, **marks: object) -> OwnHead:
    return OwnHead("q", sink, Head("r", 2, (), 5, last, marks=Marks(**marks)))


OK, LOST = Verdict.COMMITTED, Verdict.LOST


@pytest.mark.parametrize(
    ("state", "does"),
    [
        (shown([], []), "begins a new query"),
        (shown([0], []), "runs micro-batch 0 again: nothing of the query is decided"),
        (shown([0, 1], [0]), "EOS_LEDGER_HEAD_MISSING): another sink has left micro-batch 1 under way"),
        (shown([0, 1], [0, 1]), "'spark-eos checkpoint adopt'"),
        (shown([0, 1], [0, 1], own(decision(1, OK))), "plans micro-batch 2"),
        (shown([0, 1], [0, 1], own(decision(1, None))), "commits micro-batch 1, then plans micro-batch 2"),
        (shown([0, 1], [0, 1], own(decision(1, LOST))), "EOS_CHECKPOINT_AHEAD"),
        (shown([0, 1], [0, 1], own(decision(3, OK))), "EOS_CHECKPOINT_BEHIND): micro-batch 3"),
        (shown([0, 1], [0], own(decision(1, OK))), "runs micro-batch 1 again: it is decided"),
        (shown([0, 1], [0], own(decision(1, LOST))), "runs micro-batch 1 again, and writes the rows again"),
        (shown([0, 1], [0], own(decision(0, OK))), "runs micro-batch 1 again"),
        (shown([0, 1], [0], own()), "runs micro-batch 1 again"),
        (shown([0, 1], [0], own(sink="s", each=EachSink("q", "s"))), "each sink within foreachBatch"),
        (shown([0, 1], [0], own(successor=Successor("n", "/n"))), "EOS_QUERY_RETIRED): query n, with"),
        (shown([0, 1], [0], own(unfinished=Unfinished("q", "/c", "/n", 0, ()))), "replay /c --new /n --finish"),
        (shown([0, 1], [0], own(unfinished=Unfinished("q", "/c", "/c", 0, ()))), "checkpoint drop /c --yes"),
    ],
)  # fmt: skip
def test_what_a_start_would_do(state, does):
    """As the sink decides it; text and JSON say the same, and break at nothing that a head may hold."""
    assert does in state.next
    assert does in as_text(state)
    assert as_json(state)["next"] == state.next


def test_lines_of_the_offset_log():
    """Of our source, by its marks; of the built-in one; and of others."""
    ours = source_of('{"#epochs": {"t": {"0": 7}}, "#ids": {"t": "x"}, "t": {"0": 4, "1": 5}}')
    built_in = source_of('{"t":{"1":3},"u":{"0":6}}')
    assert (ours.kind, ours.ids, ours.offsets) == (OURS, {"t": "x"}, {"t": {"0": 4, "1": 5}})
    assert (built_in.kind, built_in.ids) == (BUILT_IN, {})
    assert merged([ours, built_in]) == {"t": {"0": 4, "1": 3}, "u": {"0": 6}}
    assert topic_twice([ours, built_in]) == "t"
    assert topic_twice([ours]) is None
    for line in ('{"logOffset":3}', "-", "17", "{", '{"t":{"x":1}}', "[]"):
        assert source_of(line).kind == OTHER


def test_topics_that_a_query_no_longer_reads():
    """They stand in the offset log, and whoever looks at the checkpoint sees them, even if nothing else is left."""
    line = source_of('{"#cluster": {"id": "c"}, "#left": {"t": {"id": "x", "offsets": {"1": 5, "0": 7}}}}')
    assert (line.kind, line.offsets, line.left) == (OURS, {}, {"t": {"1": 5, "0": 7}})
    state = replace(shown([0], [0]), left=line.left)
    assert as_json(state)["left"] == {"t": {"0": 7, "1": 5}}
    first, second = (found for found in as_text(state).splitlines() if "no longer read" in found)
    assert first.strip().startswith("t-0: ") and first.endswith("offset 7")
    assert second.strip().startswith("t-1: ") and second.endswith("offset 5")
