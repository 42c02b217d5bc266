"""The head of the ledger: its text form and its succession."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.errors import LedgerError
from spark_eos.protocol.head import EARLIER_RUNS, NOBODY, Decision, Head, Pair, Probe, Verdict, Written, decode, encode

counts = st.integers(0, 2**63 - 1)
names = st.text(min_size=1, max_size=60)
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
)
heads = st.builds(
    Head,
    run=names | st.just(NOBODY),
    generation=st.integers(1, 10**6),
    earlier=st.lists(names, max_size=EARLIER_RUNS).map(tuple),
    endtxn_version=st.sampled_from([4, 5]),
    decision=st.none() | decisions,
)


@given(heads)
def test_a_head_is_read_as_it_was_written(head):
    """Producer ids and digests are 64 bits wide: not a bit may go astray."""
    assert decode(encode(head)) == head


@given(heads)
def test_its_text_is_json_that_every_version_can_tell_apart(head):
    """The format's number is in it, so that a later version can refuse or read it."""
    assert json.loads(encode(head))["format"] == 1


@given(st.binary(max_size=50) | heads.map(lambda head: encode(head)[:-1]))
def test_anything_else_is_an_error_with_a_name(data):
    """A foreign record, or one that was cut."""
    with pytest.raises(LedgerError) as caught:
        decode(data)
    assert caught.value.condition == "EOS_LEDGER_DAMAGED"
    assert "ledger.topic" in caught.value.hint


@pytest.mark.parametrize("missing", ["run", "generation", "earlier", "endtxn", "decision", "format"])
def test_a_head_that_lacks_something_is_damaged(missing):
    """No default is taken for what a decision rests on."""
    raw = json.loads(encode(Head("r", 1, (), 5)))
    del raw[missing]
    with pytest.raises(LedgerError) as caught:
        decode(json.dumps(raw).encode())
    assert caught.value.condition == "EOS_LEDGER_DAMAGED"


def test_a_later_format_is_refused_by_number():
    """It says which one it is, and which one is known."""
    raw = json.loads(encode(Head("r", 1, (), 5))) | {"format": 7}
    with pytest.raises(LedgerError, match="format 7.*format 1") as caught:
        decode(json.dumps(raw).encode())
    assert caught.value.condition == "EOS_LEDGER_FORMAT"


@given(heads, names)
def test_a_successor_knows_whom_it_replaced(head, run):
    """The decision goes on with it; the generation counts up, so that no transactional id is used by two runs."""
    after = head.succeeded_by(run, 5)
    assert (after.run, after.generation, after.decision) == (run, head.generation + 1, head.decision)
    assert head.run in (NOBODY, *after.earlier)
    assert NOBODY not in after.earlier or NOBODY in head.earlier
    assert len(after.earlier) <= EARLIER_RUNS


def test_a_closed_run_stays_known_to_the_one_after():
    """Else its zombie would take the ledger from the living."""
    closed = Head("r1", 1, (), 5).succeeded_by(NOBODY, 5)
    assert closed.earlier == ("r1",)
    assert closed.succeeded_by("r2", 5).earlier == ("r1",)


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
