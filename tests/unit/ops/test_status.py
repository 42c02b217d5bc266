"""What `spark-eos status` says of a query's newest head, as plain data."""

from __future__ import annotations

from dataclasses import replace

from spark_eos.ledger.reader import Dated
from spark_eos.ops.heads import NewestHead
from spark_eos.ops.state import QueryState
from spark_eos.ops.status import as_json, overview
from spark_eos.protocol.head import Decision, Direct, Head, Marks, Pair, Probe, Range, Unfinished, Verdict, Written

DIRECT = Direct("here", (("in", "id"),), None, (Range("in", 3, 0, 2),))


def state_of(head: Head) -> QueryState:
    return QueryState("q", [NewestHead("q", Dated(0, 1, None, b""), 1.0, head)])


def shown(head: Head) -> dict:
    (sink,) = as_json(state_of(head))["sinks"]
    return sink


def written(partition: int, verdict: Verdict | None) -> Written:
    own = Written(partition, Pair(f"i{partition}", 1, 1), 1, 1, Probe("out", partition, 0), verdict)
    return replace(own, ranges=(Range("in", partition, 5, 9),))


def test_the_ranges_of_the_last_decision():
    """Of the direct way: how far each partition in it is, and what became of the rows."""
    verdicts = (Verdict.COMMITTED, Verdict.LOST, None)
    decision = Decision(4, 0, 3, 3, 1, None, tuple(written(p, v) for p, v in enumerate(verdicts)), direct=DIRECT)
    direct = shown(Head("r", 2, (), 5, decision))["decision"]["direct"]
    assert direct["cluster"] == "here"
    assert [(r["partition"], r["start"], r["end"], r["rows"]) for r in direct["ranges"]] == [
        (0, 5, 9, "committed"),
        (1, 5, 9, "lost"),
        (2, 5, 9, None),
        (3, 0, 2, "none"),
    ]
    assert {r["topic"] for r in direct["ranges"]} == {"in"}


def test_a_query_whose_rows_are_sparks():
    """It has no ranges; with or without a decision."""
    assert shown(Head("r", 2, (), 5))["decision"] is None
    assert shown(Head("r", 2, (), 5, Decision(4, 0, 0, 0, 0, None, ())))["decision"]["direct"] is None


def test_a_drop_that_is_not_finished():
    """It is told from a replay."""
    drop = Unfinished("q", "/c", "/c", 3, ())
    for mark, state in ((drop, "drop not finished"), (replace(drop, lines=("line",)), "replay not finished")):
        head = Head("", 2, (), 5, marks=Marks(unfinished=mark))
        assert shown(head)["state"] == state
        assert state in overview([state_of(head)], "ledger")
