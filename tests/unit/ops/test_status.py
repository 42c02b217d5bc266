"""What `spark-eos status` says of a query's newest head, as plain data."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.ledger.owners import Transaction
from spark_eos.ops import status
from spark_eos.ops.answer import Answer
from spark_eos.ops.heads import SinkHead
from spark_eos.ops.state import Liveness, QueryState
from spark_eos.ops.status import as_json, overview
from spark_eos.pipelines.copy.ranges import RANGES, CopiedFrom, read_from, to_bytes
from spark_eos.protocol.head import Decision, Head, Marks, Pair, Probe, Unfinished, Verdict, Written

COPIED = CopiedFrom("here", (("in", "id"),), None, (OffsetRange("in", 3, 0, 2),))


def state_of(head: Head) -> QueryState:
    return QueryState("q", [SinkHead("q", "q", None, head, 0, 1, 1.0)])


def shown(head: Head) -> dict:
    (sink,) = as_json(state_of(head))["sinks"]
    return sink


def written(partition: int, verdict: Verdict | None) -> Written:
    own = Written(partition, Pair(f"i{partition}", 1, 1), 1, 1, Probe("out", partition, 0), verdict)
    return replace(own, extra=read_from([OffsetRange("in", partition, 5, 9)], {}))


def test_the_ranges_of_the_last_decision():
    """Of a copy: how far each partition in it is, and what became of the rows."""
    verdicts = (Verdict.COMMITTED, Verdict.LOST, None)
    all_written = tuple(written(p, v) for p, v in enumerate(verdicts))
    decision = Decision(4, 0, 3, 3, 1, None, all_written, extra=RANGES.extra(to_bytes(COPIED)))
    copied_from = shown(Head("r", 2, (), 5, decision))["decision"]["copied_from"]
    assert copied_from["cluster"] == "here"
    assert [(r["partition"], r["start"], r["end"], r["rows"]) for r in copied_from["ranges"]] == [
        (0, 5, 9, "committed"),
        (1, 5, 9, "lost"),
        (2, 5, 9, None),
        (3, 0, 2, "none"),
    ]
    assert {r["topic"] for r in copied_from["ranges"]} == {"in"}


def test_a_query_whose_rows_are_sparks():
    """It has no ranges; with or without a decision."""
    assert shown(Head("r", 2, (), 5))["decision"] is None
    assert shown(Head("r", 2, (), 5, Decision(4, 0, 0, 0, 0, None, ())))["decision"]["copied_from"] is None


def test_a_drop_that_is_not_finished():
    """It is told from a replay."""
    drop = Unfinished("q", "/c", "/c", 3, ())
    for mark, state in (
        (drop, "drop of a micro-batch not finished"),
        (replace(drop, to="/n"), "replay not finished"),
    ):
        head = Head("", 2, (), 5, marks=Marks(unfinished=mark))
        assert shown(head)["state"] == state
        assert state in overview([state_of(head)], "ledger")


@pytest.mark.parametrize("named", [[], ["q"]])
def test_only_what_is_open_for_so_long(named, monkeypatch):
    """For monitoring: exit code 1 if there is such a transaction, whatever else needs somebody."""
    open_ = Transaction("p-q-2-0-0", "q", 1, 0, "Ongoing", 100.0, None, False, 2, "r", 0, True)
    lost = Decision(4, 0, 1, 1, 1, None, (written(0, Verdict.LOST),))
    found = [replace(state_of(Head("r", 2, (), 5, lost)), open=[open_], liveness=Liveness(closed=True))]
    monkeypatch.setattr(status, "query_states", lambda *_, **__: found)
    monkeypatch.setattr(status, "with_parts", lambda cluster, state: state)
    cluster: Any = SimpleNamespace(ledger="ledger")

    def answer(open_for_s: float | None) -> Answer:
        return status.status(cluster, None, named, watch_s=0, quiet_s=0, open_for_s=open_for_s)

    assert (answer(100.0).code, len(answer(100.0).data)) == (1, 1)
    assert open_.id in answer(100.0).text
    assert answer(101.0) == Answer([], "no transaction has been open for 101 s", 0)
    assert answer(None).code == 1
    found.clear()
    if not named:
        assert answer(None) == Answer([], "no query in the ledger topic ledger", 0)
