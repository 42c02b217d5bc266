"""The head of the ledger: its text form and its succession."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.errors import LedgerError
from spark_eos.kafka.partitioners import PARTITIONERS
from spark_eos.kafka.transactions import FENCING_END, PLAIN_END
from spark_eos.protocol.head import (
    EARLIER_RUNS,
    MOST_TOPICS,
    NOBODY,
    BatchWrite,
    Decision,
    Digest,
    Extra,
    ForeachBatchWrite,
    Head,
    Marks,
    Missing,
    Pair,
    Probe,
    Successor,
    Unfinished,
    Verdict,
    Written,
)
from spark_eos.protocol.head_codec import FORMAT, MOST_UNVERIFIED, decode, encode, foreach_batch_write_of
from tests.support.judges.conditions import raises

counts = st.integers(0, 2**63 - 1)
names = st.text(min_size=1, max_size=60)
texts = st.lists(names, max_size=2).map(tuple)
pairs = st.builds(Pair, id=names, producer_id=counts, epoch=st.integers(0, 2**15 - 1))
probes = st.builds(Probe, topic=names, partition=st.integers(0, 2**31 - 1), offset=counts)
written = st.builds(
    Written,
    partition=st.integers(0, 10**5),
    pair=pairs,
    rows=counts,
    digest=st.integers(0, 2**64 - 1),
    probe=probes,
    verdict=st.sampled_from([None, *Verdict]),
    endtxn_version=st.sampled_from([PLAIN_END, FENCING_END]),
    dead_letters=st.integers(0, 99),
    empty=st.lists(st.tuples(names, st.integers(0, 99)), max_size=2).map(tuple),
    extra=st.binary(max_size=50),
)
offsets = st.dictionaries(names, st.dictionaries(st.integers(0, 99).map(str), counts, min_size=1))
decisions = st.builds(
    Decision,
    batch=counts,
    rev=st.integers(0, 99),
    tasks=st.integers(0, 10**5),
    rows=counts,
    digest=st.integers(0, 2**64 - 1),
    offsets=st.none() | offsets,
    written=st.lists(written, max_size=5).map(tuple),
    digest_by=st.sampled_from(Digest),
    partitioner=st.sampled_from(sorted(PARTITIONERS)),
    group=st.none() | names,
    rewrite=st.none() | st.lists(st.integers(0, 10**5), max_size=5).map(tuple),
    two_phase=st.booleans(),
    extra=st.none() | st.builds(Extra, kind=names, body=st.binary(max_size=300), lasting=st.booleans()),
)
marks = st.builds(
    Marks,
    unfinished=st.none() | st.builds(Unfinished, names, names, names, counts, texts, texts, texts, st.none() | names),
    successor=st.none() | st.builds(Successor, names, names),
    topic=st.none() | names,
    missing=st.none() | st.builds(Missing, names, names, counts, counts),
)
heads = st.builds(
    Head,
    run=names | st.just(NOBODY),
    generation=st.integers(1, 10**6),
    earlier=st.lists(names, max_size=EARLIER_RUNS).map(tuple),
    endtxn_version=st.sampled_from([4, 5]),
    decision=st.none() | decisions,
    partitioner=st.sampled_from(sorted(PARTITIONERS)),
    two_phase=st.booleans(),
    write=st.none()
    | st.builds(BatchWrite, job_id=names, topic=st.none() | names)
    | st.builds(ForeachBatchWrite, query=names, sink=st.just("") | names),
    opened_ms=counts,
    given_up=st.none() | counts,
    closed_by_operator=st.booleans(),
    unverified=st.dictionaries(st.tuples(pairs, probes), counts, max_size=5),
    topics=st.lists(names, max_size=3, unique=True).map(sorted).map(tuple),
    more_topics=st.booleans(),
    marks=marks,
)


@given(heads)
def test_a_head_is_read_as_it_was_written(head):
    """Producer ids and digests are 64 bits wide: not a bit may go astray. The text is JSON with the format's number, by
    which a later version can refuse or read it."""
    assert decode(encode(head)) == head
    assert json.loads(encode(head))["format"] == FORMAT


def test_a_head_names_so_many_places_of_earlier_decisions():
    """Those of the oldest, which have waited for longest. It stays far below what a record may have."""
    pair = Pair("eos-6f1c2a3e-0000-4000-8000-000000000000-100000-199-0-r1", 2**40, 9)
    places = {
        (replace(pair, producer_id=2**40 + n), Probe("topic-of-others", n % 100, 2**40 + n, last=n)): 10**6 - n
        for n in range(MOST_UNVERIFIED + 100)
    }
    data = encode(Head("r", 1, (), 5, unverified=places))
    assert decode(data).unverified == dict(sorted(places.items(), key=lambda item: item[1])[:MOST_UNVERIFIED])
    assert len(data) < 750_000


def test_a_head_says_which_topics_its_places_are_of():
    """By their ids: those of places that are left of earlier decisions may be other ones."""
    at, before, unknown = Probe("a", 0, 7, 1, "id"), Probe("a", 0, 3, 1, "id before"), Probe("b", 0, 7)
    pair = Pair("p", 1, 0)
    written = Written(0, pair, 1, 1, at, begins=(at, unknown))
    head = Head("r", 1, (), 5, Decision(0, 0, 1, 1, 1, None, (written,)), unverified={(pair, before): 0})
    again = decode(encode(head))
    (w,) = again.decision.written
    assert [probe.topic_id for probe in (w.probe, *w.begins)] == ["id", "id", ""]
    assert [probe.topic_id for _, probe in again.unverified] == ["id before"]


@given(st.binary(max_size=50) | heads.map(lambda head: encode(head)[:-1]))
def test_anything_else_is_an_error_with_a_name(data):
    """A foreign record, or one that was cut."""
    with raises("EOS_LEDGER_DAMAGED", "ledger.topic"):
        decode(data)


@pytest.mark.parametrize("data", [b"[" * 200_000, b'{"write":' * 200_000])
def test_what_is_nested_too_deeply_is_no_head(data):
    """Whoever may write to the ledger gets no stack out of a command with it."""
    with raises("EOS_LEDGER_DAMAGED"):
        decode(data)
    assert foreach_batch_write_of(data) is None


@pytest.mark.parametrize("missing", sorted(json.loads(encode(Head("r", 1, (), 5))).keys() - {"written_by"}))
def test_a_head_that_lacks_something_is_damaged(missing):
    """No default is taken for what a decision rests on."""
    raw = json.loads(encode(Head("r", 1, (), 5)))
    del raw[missing]
    with raises("EOS_LEDGER_DAMAGED"):
        decode(json.dumps(raw).encode())


def test_a_later_format_is_refused_by_number():
    """It says which one it is, and which one is known."""
    raw = json.loads(encode(Head("r", 1, (), 5))) | {"format": 7}
    with pytest.raises(LedgerError, match=r"EOS_LEDGER_FORMAT.*format 7.*format 1"):
        decode(json.dumps(raw).encode())


def _later(**changed):
    """A head whose decision holds something that this version does not know."""
    one = Written(0, Pair("id", 1, 1), 1, 1, Probe("t", 0, 0))
    raw = json.loads(encode(Head("r", 1, (), 5, Decision(1, 0, 1, 1, 1, None, (one,)))))
    raw["written_by"] = "9.8.7"
    raw["decision"] |= changed
    return json.dumps(raw).encode()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"digest_by": "blake3"}, "digest 'blake3'"),
        ({"partitioner": "rendezvous"}, "partitioner 'rendezvous'"),
        ({"written": [[0, ["id", 1, 1], 1, 1, ["t", 0, 0], None, 6, 0, [], {}, ""]]}, "version 6 of EndTxn"),
        ({"written": [[0, ["id", 1, 1], 1, 1, ["t", 0, 0], None, 3, 0, [], {}, ""]]}, "version 3 of EndTxn"),
        ({"written": [[0, ["id", 1, 1], 1, 1, ["t", 0, 0], "forgotten", 5, 0, [], {}, ""]]}, "verdict 'forgotten'"),
        ({"way": "copied_from"}, "with way"),
    ],
)
def test_what_a_replay_could_not_repeat_is_a_stop_that_names_the_version(changed, named):
    """A replay that was made in another way would diverge, or end transactions as they must not be."""
    with raises("EOS_LEDGER_FORMAT", named, "Install spark-eos 9.8.7"):
        decode(_later(**changed))


def _added(raw, *path):
    """One more item where the path leads."""
    *before, last = path
    for step in before:
        raw = raw[step]
    raw[last] = raw[last] | {"more": 1} if isinstance(raw[last], dict) else [*raw[last], 1]


@pytest.mark.parametrize(
    "path",
    [
        ("decision", "written", 0),
        ("decision", "written", 0, 1),
        ("decision", "extra"),
        ("marks", "successor"),
        ("write",),
    ],
    ids=lambda path: ".".join(map(str, path)),
)
@pytest.mark.parametrize("by", ["9.8.7", None])
def test_what_another_version_has_written_is_not_somebody_elses(path, by):
    """Whoever gave the query another ledger, as for a foreign record, would take its head from it."""
    one = Written(0, Pair("id", 1, 1), 1, 1, Probe("t", 0, 0))
    decision = Decision(0, 0, 1, 1, 1, None, (one,), extra=Extra("notes", b"n"))
    head = Head("r", 1, (), 5, decision, write=ForeachBatchWrite("q", "s"), marks=Marks(successor=Successor("q", "c")))
    raw = json.loads(encode(head))
    raw["written_by"] = by or raw["written_by"]
    _added(raw, *path)
    with raises("EOS_LEDGER_DAMAGED") if by is None else raises("EOS_LEDGER_FORMAT", "Install spark-eos 9.8.7"):
        decode(json.dumps(raw).encode())


def test_a_head_says_where_transactions_begin_while_that_is_short():
    """In each partition, as long as they may have to be looked for; a head stays far below a record's limit."""

    def told(partitions: int, verdict: Verdict | None = None) -> tuple[Probe, ...]:
        begins = tuple(Probe(topic, p, 10 * p) for topic in ("t", "u") for p in range(partitions))
        w = Written(0, Pair("a", 1, 2), 5, 6, begins[0], verdict, begins=begins)
        head = decode(encode(Head("r", 1, (), 5, Decision(1, 0, 1, 5, 6, None, (w,)))))
        assert head.decision is not None
        assert head.decision.written[0].begins in (begins, ())
        return head.decision.written[0].begins

    assert len(told(500)) == 1_000
    assert told(501) == ()
    assert told(1, Verdict.COMMITTED) == ()


def test_a_head_says_where_transactions_end():
    """The number of the last record in each partition, where it is known."""

    def told(*begins: Probe) -> list[int | None]:
        w = Written(0, Pair("a", 1, 2), 5, 6, begins[0], begins=begins)
        decision = decode(encode(Head("r", 1, (), 5, Decision(1, 0, 1, 5, 6, None, (w,))))).decision
        assert decision is not None and decision.written[0].begins == begins
        return [probe.last for probe in decision.written[0].begins]

    assert told(Probe("t", 2, 7, 4), Probe("t", 10, 0, 0), Probe("u", 1, 3, 2**31 - 1)) == [4, 0, 2**31 - 1]
    assert told(Probe("t", 2, 7, 4), Probe("t", 10, 0)) == [4, None]


def test_what_a_later_version_says_besides_decisions_is_passed_over():
    """It asks nothing of a replay."""
    raw = json.loads(encode(Head("r", 1, (), 5))) | {"colour": "blue"}
    assert decode(json.dumps(raw).encode()) == Head("r", 1, (), 5)


@pytest.mark.parametrize("write", [None, ForeachBatchWrite("q", "s"), ForeachBatchWrite("q", "")])
def test_a_head_names_its_sink_within_foreach_batch_without_being_read_whole(write):
    """So a sink is found by the very text that a head is written as, whatever another version adds to it."""
    data = encode(Head("r", 2, (), FENCING_END, write=write))
    assert foreach_batch_write_of(data) == write
    assert foreach_batch_write_of(json.dumps({**json.loads(data), "format": FORMAT + 1}).encode()) == write


@given(heads, names)
def test_a_successor_knows_whom_it_replaced(head, run):
    """Decision and marks go on with it; the generation counts up, so that no transactional id is used by two runs.
    Earlier ones stay known, also where an operator has closed the last one: else a zombie would take the ledger from
    the living."""
    after = head.succeeded_by(run, 5)
    assert after.succeeded_by(NOBODY, 5).succeeded_by("later", 5).earlier == after.succeeded_by("later", 5).earlier
    assert (after.run, after.generation) == (run, head.generation + 1)
    assert (after.decision, after.marks) == (head.decision, head.marks)
    assert head.run in (NOBODY, *after.earlier)
    assert {*head.earlier[: EARLIER_RUNS - 1]} <= {*after.earlier}
    assert NOBODY not in after.earlier or NOBODY in head.earlier
    assert len(after.earlier) <= EARLIER_RUNS


@given(decisions.filter(lambda decision: decision.written))
def test_verdicts_are_written_in_and_stay(decision):
    """A verdict is final: one that is not given again is kept."""
    first = decision.written[0].pair
    judged = decision.judged({first: Verdict.LOST})
    assert all(w.verdict is Verdict.LOST for w in judged.written if w.pair == first)
    assert [w.verdict for w in judged.written if w.pair != first] == [
        w.verdict for w in decision.written if w.pair != first
    ]
    assert judged.judged({}) == judged
    assert {w.pair for w in judged.lost} == {w.pair for w in judged.written if w.verdict is Verdict.LOST}


def test_a_transaction_takes_about_a_hundred_bytes():
    """A batch of a thousand tasks must fit into one record of the ledger."""
    one = Written(7, Pair("spark-eos-0b9d2c46-6f0e-4b0e-9a0b-0f8f4a3d2c11-3-7-1", 4711, 9), 10, 2**40, Probe("t", 1, 9))
    sizes = [len(encode(Head("r", 1, (), 5, Decision(1, 0, n, 1, 1, None, (one,) * n)))) for n in (0, 1000)]
    assert (sizes[1] - sizes[0]) / 1000 < 150


@given(heads, st.lists(st.lists(names, max_size=4), max_size=4))
def test_a_head_knows_every_topic_that_it_was_given(head, given):
    """From run to run, and whatever is decided."""
    for topics in given:
        head = replace(head.with_topics(topics).succeeded_by("next", 5), decision=None)
    assert all(head.may_write_to(topic) for topics in given for topic in topics)


def test_a_head_with_too_many_topics_may_write_to_any():
    """It stays small enough to be written with each decision."""
    head = Head("r", 1, (), 5).with_topics(str(n) for n in range(MOST_TOPICS))
    assert not head.may_write_to("another")
    head = head.with_topics(["0", "1"])
    assert (len(head.topics), head.more_topics) == (MOST_TOPICS, False)
    assert head.with_topics(["another"]).may_write_to("any")
    assert len(head.with_topics(["another"]).topics) == MOST_TOPICS
