"""What a start would do, by what checkpoint and ledger hold; what needs somebody; and the lines of the offset log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.admin.topics import Topic
from spark_eos.kafka.codes import Code
from spark_eos.kafka.errors import refusal
from spark_eos.ledger.owners import Transaction
from spark_eos.ledger.reader import StoredHead
from spark_eos.ops import query_states
from spark_eos.ops.checkpoint_logs import Logs
from spark_eos.ops.heads import SinkHead, sink_head
from spark_eos.ops.state import CheckpointState, Liveness, QueryState, ReadPartition
from spark_eos.ops.status import as_json, as_text, overview
from spark_eos.protocol.head import (
    Decision,
    ForeachBatchWrite,
    Head,
    Marks,
    Missing,
    Pair,
    Probe,
    Successor,
    Unfinished,
    Verdict,
    Write,
    Written,
)
from tests.support.judges.conditions import raises
from tests.unit.ops.conftest import Topics

#: No request goes to it: topics are looked up by what `kafka` replaces.
CLUSTER: Any = SimpleNamespace(client=None)


def decision(batch: int, *verdicts: Verdict | None) -> Decision:
    written = tuple(Written(p, Pair(f"i{p}", 1, 1), 1, 1, Probe("t", p, 0), v) for p, v in enumerate(verdicts))
    return Decision(batch, 0, len(written), len(written), 1, {"t": {"0": 9}}, written, group="g")


def shown(planned: Sequence[int], done: Sequence[int], *heads: SinkHead) -> QueryState:
    place = ReadPartition("t", 0, 9, None, 0, 12)
    at = CheckpointState("/c", planned, done, False, ["eos-kafka"], [place])
    return QueryState("q" if planned else None, heads, checkpoint=at, liveness=Liveness(closed=True))


def of(head: Head) -> SinkHead:
    return sink_head("q" if head.write is None else head.write.query_id, StoredHead(0, 7, None, b""), head, 90.0)


def own(last: Decision | None = None, **marks: object) -> SinkHead:
    return of(Head("r", 2, (), 5, last, marks=Marks(**marks)))


def given_up(batch: int, write: Write | None = None) -> SinkHead:
    return of(Head("r", 2, (), 5, given_up=batch, write=write))


SINK = ForeachBatchWrite("q", "s")
OK, LOST = Verdict.COMMITTED, Verdict.LOST


@pytest.mark.parametrize(
    ("state", "does"),
    [
        (shown([], []), "begins a new query"),
        (shown([0], []), "runs micro-batch 0 again; the ledger topic has no decision of the query yet"),
        (shown([0, 1], [0, 1], own(decision(1, OK))), "plans micro-batch 2"),
        (shown([0, 1], [0, 1], own(decision(1, None))), "commits micro-batch 1, then plans micro-batch 2"),
        (shown([0, 1], [0, 1], own(decision(1, LOST))), "EOS_CHECKPOINT_AHEAD"),
        (shown([0, 1], [0, 1], own(decision(3, OK))), "[EOS_CHECKPOINT_BEHIND] The checkpoint is at micro-batch 2"),
        (shown([0, 1], [0], own(decision(1, OK))), "runs micro-batch 1 again: it is decided already"),
        (shown([0, 1], [0], own(decision(1, LOST))), "runs micro-batch 1 again, and writes the rows of the lost"),
        (shown([0, 1], [0], own(decision(0, OK))), "runs micro-batch 1 again"),
        (shown([0, 1], [0], own()), "runs micro-batch 1 again"),
        (shown([0, 1], [0], of(Head("r", 2, (), 5, write=SINK))), "each sink within foreachBatch"),
        (shown([0, 1], [0], own(missing=Missing("id", "t", 0, 5))), "[EOS_ROWS_MISSING] Transaction id was"),
        (shown([0, 1], [0], given_up(0, SINK)), "sink s: [EOS_WRITE_LEFT_BEHIND] The"),
        (shown([0, 1], [0], given_up(1)), "runs micro-batch 1 again"),
        (shown([0, 1], [0], own(successor=Successor("n", "/n"))), "[EOS_QUERY_RETIRED] This query was retired"),
        (shown([0, 1], [0], own(unfinished=Unfinished("q", "/c", "/n", 0, ()))), "replay /c --new /n --yes"),
        (shown([0, 1], [0], own(unfinished=Unfinished("q", "/c", "/c", 0, ()))), "recover /c --drop-planned --yes"),
    ],
)  # fmt: skip
def test_what_a_start_would_do(state, does):
    """As the sink decides it; text and JSON say the same, and break at nothing that a head may hold."""
    assert state.next_action is not None and does in state.next_action
    assert does in as_text(state)
    assert as_json(state)["next"] == state.next_action
    assert (f"the next start {state.next_action}" in state.problems) is state.next_action.startswith("stops")


@pytest.mark.parametrize(
    ("done", "does"),
    [
        ([0], "if another sink wrote until now and has not finished that micro-batch, start"),
        ([0, 1], "A query to tables or files needs none, and goes on: there is nothing to do."),
        ([0, 1], "If it writes to topics by eos-kafka, the next start stops (EOS_LEDGER_HEAD_MISSING): if another"),
        ([0, 1], "set the option 'ledger.begin' to 2 to continue here"),
    ],
)
def test_without_a_record_it_is_not_known_what_a_start_does(done, does):
    """The query may write to something that has no ledger, as a sink of Spark's or an older copy to a table."""
    state = shown([0, 1], done)
    assert (state.next_action, state.problems) == (None, [])
    assert does in state.unknown and does in as_text(state)
    assert as_json(state)["unknown"] == state.unknown
    assert "none found" not in as_text(state)


def test_a_checkpoint_and_a_decision_as_text():
    """Both logs, the partitions, and what was decided last."""
    lines = [" ".join(line.split()) for line in as_text(shown([0, 1, 3], [0, 1], own(decision(1, OK)))).splitlines()]
    for line in (
        "planned micro-batches 0 to 3, 3 of them (in the offset log)",
        "committed micro-batches 0 to 1 (in the commit log)",
        "t-0 - 9 0 12",
        "decided micro-batch 1: 1 row(s), transactions: 1 committed",
    ):
        assert line in lines


def test_topics_that_a_query_no_longer_reads():
    """They stand in the offset log, and whoever looks at the checkpoint sees them, even if nothing else is left."""
    state = shown([0], [0])
    assert state.checkpoint is not None
    state = replace(state, checkpoint=replace(state.checkpoint, left={"t": {1: 5, 0: 7}}))
    assert as_json(state)["checkpoint"]["left"] == {"t": {"0": 7, "1": 5}}
    first, second = (found for found in as_text(state).splitlines() if "no longer read" in found)
    assert first.strip().startswith("t-0: ") and first.endswith("offset 7")
    assert second.strip().startswith("t-1: ") and second.endswith("offset 5")


OPEN = Transaction("p-q-2-0-0", "q", 1, 0, "Ongoing", 100.0, 60.0, False, 2, "r", 0, False)


@pytest.mark.parametrize(
    ("head", "trouble", "next_"),
    [
        (Head("r", 2, (), 5), None, None),
        (Head("", 2, (), 5, marks=Marks(successor=Successor("n", "/n"))), None, "stops: [EOS_QUERY_RETIRED]"),
        (Head("r", 2, (), 5, decision(1, LOST)), "sink: 1 transaction(s) lost", None),
        (Head("r", 2, (), 5, given_up=3), "sink: the write of micro-batch 3 was given up", None),
        (
            Head("", 2, (), 5, marks=Marks(unfinished=Unfinished("q", "/c", "/c", 0, ()))),
            "the next start stops: [EOS_DROP_UNFINISHED]",
            "stops: [EOS_DROP_UNFINISHED]",
        ),
    ],
)
def test_what_is_known_without_a_checkpoint(head, trouble, next_):
    """What a start does at any micro-batch; a query that is retired needs nobody."""
    state = QueryState("q", [of(head)], liveness=Liveness(closed=True))
    assert len(state.problems) == (trouble is not None)
    assert trouble is None or state.problems[0].startswith(trouble)
    assert (state.next_action is None) is (next_ is None)
    assert next_ is None or (state.next_action or "").startswith(next_)
    assert as_text(state).lower().count("the next start stops") == (next_ is not None)


def test_open_transactions_need_somebody_unless_the_query_runs():
    """By its signs of life, and by the age of the newest."""
    alive = QueryState("q", [own()], [OPEN], Liveness(last_s=20.0))
    assert (alive.liveness.running, alive.problems) == (True, [])
    assert "hold back read_committed consumers" in replace(alive, liveness=Liveness(last_s=80.0)).problems[0]
    moved = replace(alive, liveness=Liveness(["rows were written"], last_s=80.0))
    assert (moved.liveness.running, moved.problems) == (True, [])
    assert replace(alive, liveness=Liveness(closed=True)).liveness.running is False


def test_a_ledger_that_cannot_be_read_is_no_empty_one():
    """What is open is told all the same; what a start would do is not known."""
    state = replace(shown([0, 1], [0]), open=[OPEN], unread="[EOS_LEDGER_HELD] it is held")
    assert state.next_action is None
    assert "[EOS_LEDGER_HELD] it is held" in as_text(state)
    assert "no record" not in as_text(state)
    assert OPEN.id in overview([state], "ledger")


def test_a_head_that_cannot_be_read():
    """It is told, and nothing is said of a start."""
    unknown = sink_head("q", StoredHead(0, 7, None, b""), None, problem="[EOS_LEDGER_VERSION] too new")
    state = replace(shown([0, 1], [0]), sinks=[unknown])
    trouble = "sink: its record in the ledger topic cannot be read: [EOS_LEDGER_VERSION] too new"
    assert (state.next_action, state.problems) == (None, [trouble])
    assert "[EOS_LEDGER_VERSION] too new" in as_text(state)
    assert "[EOS_LEDGER_VERSION] too new" in overview([state], "ledger")
    assert as_json(state)["sinks"][0]["problem"] == "[EOS_LEDGER_VERSION] too new"


@pytest.mark.parametrize("readable", [True, False])
def test_a_head_names_its_query_only_under_its_own_key(readable):
    """Whoever may write to the ledger may name any query. A head of another version names it, too."""
    head = Head("r", 2, (), 5, write=SINK) if readable else None
    value = b'{"format": 99, "write": {"query": "q", "sink": "s"}}'
    for key, query in ((SINK.query_id, "q"), ("other", "other")):
        own = sink_head(key, StoredHead(0, 7, None, value), head)
        assert (own.query, own.name) == (query, "s" if query == "q" else None)


@pytest.mark.parametrize("value", [b"", b"[]", b"7", b'{"write": 7}', b'{"write": {"sink": "s"}}', b'{"write": null}'])
def test_what_is_no_head_names_no_query(value):
    """Somebody else's record."""
    assert sink_head("k", StoredHead(0, 7, None, value), None, problem="no head").query == "k"


def test_the_input_of_a_mirror_is_not_looked_up_on_the_target(kafka: Topics, tmp_path):
    """A topic of the same name there, which the mirror has made, is another one: its ends and its id say nothing."""
    line = {"#cluster": {"id": "SOURCE"}, "#ids": {"orders": "id-there"}, "orders": {"0": 1000}}
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}}
    (tmp_path / "offsets" / "0").write_text(f"v1\n{json.dumps(metadata)}\n{json.dumps(line)}")
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    logs = Logs(Checkpoint(str(tmp_path), HadoopSettings({})))
    kafka.there = {"orders": Topic("id-here", 1, False)}
    at = query_states.checkpoint_state(logs, CLUSTER)
    assert at.partitions == [ReadPartition("orders", 0, 1000, 1000, None, None)]
    assert (at.recreated_topics, at.elsewhere, at.lag) == ([], ["orders"], None)
    text = as_text(QueryState("q", checkpoint=at))
    assert "orders: on another cluster" in text and "lag         unknown" in text
    for kafka.id in ("SOURCE", ""):  # brokers may have no id
        at = query_states.checkpoint_state(logs, CLUSTER)
        assert at.partitions == [ReadPartition("orders", 0, 1000, 1000, kafka.begin, kafka.end)]
        assert (at.recreated_topics, at.elsewhere) == (["orders"], [])


def test_an_output_that_was_deleted_ends_nowhere(kafka: Topics):
    """So that what is open there can be aborted. Another error, such as of a leader that is away, is raised: that
    nothing was written is not known."""
    ends, written = query_states._ends, (("gone", 0), ("out", 0), ("out", 1))
    open_ = Transaction("p-q-2-0-0", "q", 1, 0, "Ongoing", 100.0, None, False, 2, "r", 0, True, written)
    kafka.there = {"out": Topic("id", 1, False)}
    assert ends(CLUSTER, [open_]) == {("out", 0, kafka.end)}
    kafka.error = refusal("h:9092", "out", Code.LEADER_NOT_AVAILABLE, 1.0)
    with pytest.raises(ConnectionFailed):
        ends(CLUSTER, [open_])
    kafka.there.clear()
    assert ends(CLUSTER, [open_]) == frozenset()


def at_end(committed: int | None, begin: int | None, recreated: Sequence[str] = ()) -> QueryState:
    """A query that has done micro-batch 1, at these offsets of two partitions; the logs end at 1000."""
    places = [ReadPartition("t", 0, 500, committed, begin, 1000), ReadPartition("u", 0, 990, 990, 0, 1000)]
    at = CheckpointState("/c", [0, 1], [0, 1], False, ["eos-kafka"], places, recreated)
    return QueryState("q", [own(decision(1, OK))], checkpoint=at, liveness=Liveness(closed=True))


@pytest.mark.parametrize(
    ("state", "lag", "trouble"),
    [
        (at_end(400, 400), 610, ""),
        (at_end(400, None), 610, ""),
        (at_end(400, 900), 110, "t-0 is read up to offset 400, and its log begins at 900"),
        (at_end(None, 500), 510, ""),
        (at_end(None, 900), 110, "t-0 is read up to offset 500, and its log begins at 900"),
        (at_end(400, 0, ["t"]), None, "t was deleted or recreated since it was read"),
        (at_end(400, 900, ["t"]), None, "t was deleted or recreated since it was read"),
    ],
)
def test_input_that_is_gone_before_it_was_read(state, lag, trouble):
    """Where the source stops; rows that nobody can read are no lag."""
    assert state.checkpoint.lag == lag
    assert len(state.problems) == bool(trouble)
    assert "plans micro-batch 2" in state.next_action
    assert ("unless its source stops (EOS_SOURCE_DATA_LOSS)" in state.next_action) is bool(trouble)
    if trouble:
        assert state.problems[0].startswith(f"{trouble}: ") and "failOnDataLoss" in state.problems[0]
        assert "trouble     none" not in as_text(state)


@pytest.mark.parametrize(
    ("sources", "condition"),
    [(["kafka", "another"], "KAFKA_DATA_LOSS"), (["kafka", "eos-kafka"], "EOS_SOURCE_DATA_LOSS or KAFKA_DATA_LOSS")],
)
def test_the_error_of_each_kind_of_source_is_named(sources, condition):
    """By which it stops: Spark's own has one of its connector."""
    state = at_end(400, 900)
    state = replace(state, checkpoint=replace(state.checkpoint, sources=sources))
    assert f"unless its source stops ({condition})," in state.next_action
    assert f"the source stops for that ({condition}), unless" in state.problems[0]


def test_a_place_without_a_file_is_no_query(kafka: Topics, tmp_path):
    """A wrong path, or a mount that is not there, is not a query without troubles. One that Spark has begun to write is
    a query, though it has none of its files yet."""

    def found(folder: Path) -> list[QueryState]:
        return query_states.query_states(CLUSTER, Checkpoint(str(folder)), [], watch_s=0, quiet_s=60)

    for empty in (tmp_path / "none", tmp_path):
        with raises("EOS_QUERY_UNKNOWN.checkpoint"):
            found(empty)
    (tmp_path / "offsets").mkdir()
    (state,) = found(tmp_path)
    assert state.next_action == "begins a new query, with micro-batch 0"
