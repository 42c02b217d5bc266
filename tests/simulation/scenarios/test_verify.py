"""What was committed, looked at once more: an operator's abort of one partition is told, and noted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from spark_eos.errors import EosError, Unclear
from spark_eos.protocol import verify as verify_module
from spark_eos.protocol.abort import abort
from spark_eos.protocol.commands import hand_over, retire, settle_decided, settled_state
from spark_eos.protocol.commit import CommitReport, commit
from spark_eos.protocol.head import NOBODY, Decision, Successor, Verdict
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.protocol.ports import Ports
from spark_eos.protocol.verify import (
    Verified,
    starts_of,
    unverified_starts,
    verify_last,
    verify_visible,
    with_missing_marked,
)
from tests.simulation.by_hand import OUTPUT, Brokers, meanwhile, on_brokers, stopped
from tests.simulation.ledger import LEDGER, PREFIX, QUERY

MISSING = "EOS_ROWS_MISSING"
HEIR = Successor("another", "/new")


def committed(brokers: Brokers, *, aborted: bool, run: str = "r1", number: int = 0) -> CommitReport:
    """A micro-batch whose partition was aborted right before its commit, or was not."""
    head = brokers.open(run, number)
    batch = brokers.prepared(head, number)
    (pair,) = batch.pairs
    own = brokers.ports("commit.decided", lambda: aborted and brokers.aborted_by_hand(pair))
    return commit(own, batch)


def counted(brokers: Brokers) -> tuple[Ports, list[None]]:
    """Ports, and an item for each request for places through them."""
    own, asked = brokers.ports(), list[None]()
    meanwhile(own.data, "look_each", lambda: asked.append(None))
    return own, asked


@on_brokers
def test_a_young_transaction_that_was_aborted_in_its_partition_is_told(brokers: Brokers):
    """The commit itself cannot tell. The error names the place; from then on, neither a commit nor a start gets past
    it, whatever the log still knows."""
    report = committed(brokers, aborted=True)
    assert brokers.visible() == 0
    error = stopped(MISSING, lambda: verify_visible(brokers.ports(), starts_of(report.decision)))
    assert "micro-batch 0" in error.message and f"{OUTPUT[0]}-{OUTPUT[1]}" in error.message
    assert (error.parameters["topic"], error.parameters["partition"], error.parameters["offset"]) == (*OUTPUT, 0)
    assert "spark-eos verify" in error.hint
    assert not error.restart_helps
    assert with_missing_marked(brokers.ports(), "r1", error) is error
    before = brokers.heads
    brokers.taken_by_retention()
    stopped(MISSING, lambda: commit(brokers.ports(), brokers.prepared(brokers.ports().ledger.read(), 1)))
    assert brokers.heads == before
    abort(brokers.ports(), "r1", 1)
    for run in ("r2", "r3"):
        stopped(MISSING, lambda run=run: brokers.open(run, 1))
    assert brokers.ports().ledger.read().run == NOBODY


@on_brokers
def test_nothing_is_noted_by_a_run_that_was_replaced_nor_for_another_error(brokers: Brokers):
    """Whoever has taken over looks itself."""
    report = committed(brokers, aborted=True)
    error = stopped(MISSING, lambda: verify_visible(brokers.ports(), starts_of(report.decision)))
    before = brokers.heads
    busy = EosError("EOS_LEDGER_BUSY", "Busy.", hint="Wait.")
    with_missing_marked(brokers.ports(), "another", error)
    assert with_missing_marked(brokers.ports(), brokers.ports().ledger.read().run, busy) is busy  # type: ignore[arg-type]
    assert brokers.heads == before


@on_brokers
def test_the_next_commit_looks_in_the_place_of_another_process(brokers: Brokers):
    """Before its own decision takes the place of the one that nobody has looked at. It is noted at once."""
    committed(brokers, aborted=True)
    head = brokers.ports().ledger.read()
    stopped(MISSING, lambda: commit(brokers.ports(), brokers.prepared(head, 1)))
    assert brokers.ports().ledger.read().marks.missing is not None


@on_brokers
def test_a_commit_after_a_look_asks_for_nothing_more(brokers: Brokers):
    """Nor does it wait: what it is told was looked at in the background."""
    report = committed(brokers, aborted=False)
    assert verify_visible(brokers.ports(), starts_of(report.decision)) == {}
    head = brokers.ports().ledger.read()
    own, asked = counted(brokers)
    assert commit(own, brokers.prepared(head, 1), verified=Verified(report.decision, {})).transactions == 1
    assert asked == []


@on_brokers
def test_a_first_commit_of_a_run_asks_for_nothing_more(brokers: Brokers):
    """Its start has looked, by one request for all places."""
    committed(brokers, aborted=False)
    own, asked = counted(brokers)
    head = brokers.open("r2", 1, own=own)
    assert len(asked) == 1
    commit(own, brokers.prepared(head, 1))
    assert len(asked) == 1


@on_brokers
def test_a_look_waits_for_the_markers(brokers: Brokers):
    """As long as the transaction is open in its partition, that is no answer."""

    def late() -> None:
        brokers.cluster.next_markers = (3_000, 3_000)

    batch = brokers.prepared(brokers.open("r1"))
    report = commit(brokers.ports("commit.decided", late), batch)
    own, asked = counted(brokers)
    assert verify_visible(own, starts_of(report.decision)) == {}
    assert len(asked) > 1
    assert brokers.world.now > 3_000


@pytest.mark.parametrize(("late_ms", "verdict"), [(1_000, Verdict.COMMITTED), (30_000, None)])
@on_brokers
def test_a_start_waits_for_markers_but_not_for_long(brokers: Brokers, late_ms: int, verdict: Verdict | None):
    """What cannot be read by then is left to its commits, without a verdict."""
    batch = brokers.prepared(brokers.open("r1"))
    brokers.dies("commit.decided", batch)
    brokers.cluster.next_markers = (late_ms, late_ms)
    began_ms = brokers.world.now
    assert [w.verdict for w in brokers.open("r2").decision.written] == [verdict]
    assert brokers.world.now - began_ms < 5_000


@pytest.mark.parametrize("aborted", [True, False])
@on_brokers
def test_what_others_hold_is_looked_at_later(brokers: Brokers, aborted: bool):
    """A transaction of another program may be open for long; a look does not wait for its end, and forgets nothing."""
    other = brokers.another_program()
    report = committed(brokers, aborted=aborted)
    places = starts_of(report.decision)
    began_ms = brokers.world.now
    assert verify_visible(brokers.ports(), places) == places
    assert brokers.world.now - began_ms < 100
    other.end(commit=True)
    if aborted:
        stopped(MISSING, lambda: verify_visible(brokers.ports(), places))
    else:
        assert verify_visible(brokers.ports(), places) == {}


@on_brokers
def test_a_commit_hands_on_what_others_hold(brokers: Brokers):
    """Of the decision before, which another process has made."""
    other = brokers.another_program()
    first = committed(brokers, aborted=True).decision
    report = commit(brokers.ports(), brokers.prepared(brokers.ports().ledger.read(), 1))
    assert report.unverified == starts_of(first)
    other.end(commit=True)
    stopped(MISSING, lambda: verify_visible(brokers.ports(), report.unverified))


def two_decisions(brokers: Brokers) -> tuple[Decision, Decision]:
    """The first was aborted in its partition, where another program's transaction keeps readers from it; the process
    that has committed both knows that it could not look at it, and is gone now."""
    first = committed(brokers, aborted=True).decision
    assert first is not None
    left = verify_visible(brokers.ports(), starts_of(first))
    batch = brokers.prepared(brokers.ports().ledger.read(), 1)
    second = commit(brokers.ports(), batch, verified=Verified(first, left)).decision
    assert second is not None
    return first, second


@pytest.mark.parametrize(
    ("does", "held"),
    [
        (lambda own: open_run(own, NewRun(f"r{own.now_ms()}", 2, prefix=PREFIX)), None),
        (lambda own: settle_decided(own, QUERY), None),
        (verify_last, "EOS_OUTCOME_UNCLEAR"),
        (lambda own: retire(own, QUERY, HEIR), "EOS_OUTCOME_UNCLEAR"),
        (lambda own: hand_over(own, HEIR, settled_state(own).decision, PREFIX), "EOS_OUTCOME_UNCLEAR"),
    ],
    ids=["start", "settle", "end", "retire", "hand over"],
)
@on_brokers
def test_the_places_that_nobody_could_look_at_are_in_the_head_of_the_next_decision(
    brokers: Brokers, does: Callable[[Ports], object], held: str | None
):
    """Whoever comes next learns of them there. They stay there, and those of the decision are left to be looked at; who
    waits for the end of the query, or ends it for good, waits for them, as nobody else would ever look, and changes
    nothing until then."""
    other = brokers.another_program()
    first, second = two_decisions(brokers)
    head = brokers.ports().ledger.read()
    assert (head.decision, head.unverified) == (second, starts_of(first))
    if held is None:
        does(brokers.ports())
    else:
        stopped(held, lambda: does(brokers.ports()))
    after = brokers.ports().ledger.read()
    assert unverified_starts(after) == {**starts_of(first), **starts_of(second)} and after.marks == head.marks
    other.end(commit=True)
    error = stopped(MISSING, lambda: does(brokers.ports()))
    assert error.parameters["offset"] == next(iter(starts_of(first)))[1].offset
    assert brokers.ports().ledger.read().marks.successor is None


@on_brokers
def test_a_query_is_not_handed_over_before_its_last_decision_was_looked_at(brokers: Brokers):
    """Whose rows others hold, so that the commit, and whoever settled it, have left that to the next start."""
    other = brokers.another_program()
    committed(brokers, aborted=True)
    own = brokers.ports()
    stopped("EOS_OUTCOME_UNCLEAR", lambda: hand_over(own, HEIR, settled_state(own).decision, PREFIX))
    other.end(commit=True)
    stopped(MISSING, lambda: hand_over(own, HEIR, settled_state(own).decision, PREFIX))
    assert own.ledger.read().marks.successor is None


@pytest.mark.parametrize(
    "does",
    [
        lambda brokers: brokers.open("r2", 2),
        lambda brokers: commit(brokers.ports(), brokers.prepared(brokers.ports().ledger.read(), 2)),
        lambda brokers: settle_decided(brokers.ports(), QUERY),
    ],
    ids=["start", "commit", "settle"],
)
@on_brokers
def test_what_was_looked_at_goes_from_the_head(brokers: Brokers, does: Callable[[Brokers], object]):
    """As soon as others keep nobody from it any more."""
    other = brokers.another_program()
    first = committed(brokers, aborted=False).decision
    batch = brokers.prepared(brokers.ports().ledger.read(), 1)
    commit(brokers.ports(), batch, verified=Verified(first, starts_of(first)))
    assert brokers.ports().ledger.read().unverified == starts_of(first)
    other.end(commit=True)
    does(brokers)
    assert brokers.ports().ledger.read().unverified == {}


@pytest.mark.parametrize("decisions", [1, 2])
@on_brokers
def test_a_replay_hands_on_what_its_start_could_not_look_at(brokers: Brokers, decisions: int):
    """The process that runs it looks at its own places and those in the head, as after any commit. After that of a
    batch write nobody else would, as it notes that all is done."""
    other = brokers.another_program()
    made = two_decisions(brokers) if decisions == 2 else (committed(brokers, aborted=True).decision,)
    number = decisions - 1
    batch = brokers.prepared(brokers.open("r2", number), number)
    counted = replace(batch, reports=(replace(batch.reports[0], written=None),))
    report = commit(brokers.ports(), counted)
    assert report.replayed and starts_of(report.decision) == starts_of(made[-1])
    assert report.unverified == (starts_of(made[0]) if decisions == 2 else {})
    other.end(commit=True)
    stopped(MISSING, lambda: verify_visible(brokers.ports(), {**report.unverified, **starts_of(report.decision)}))


@on_brokers
def test_whoever_waits_for_the_end_waits_for_others(brokers: Brokers):
    """Until their transactions end; after a minute, it is told that nobody knows."""
    other = brokers.another_program()
    committed(brokers, aborted=False)
    error = stopped("EOS_OUTCOME_UNCLEAR", lambda: verify_last(brokers.ports()))
    assert isinstance(error, Unclear) and error.restart_helps
    assert "find-hanging" in error.hint
    verify_last(brokers.ports(), stopped=True)
    other.end(commit=True)
    verify_last(brokers.ports())


@on_brokers
def test_a_query_that_has_committed_something_has_a_head_that_knows_of_it(brokers: Brokers):
    """Where the ledger has none, or one before it, the head that names the micro-batch was lost. A query that has
    decided nothing has nothing to look at."""
    verify_last(brokers.ports())
    stopped("EOS_LEDGER_HEAD_MISSING", lambda: verify_last(brokers.ports(), 0))
    brokers.open("r1")
    verify_last(brokers.ports())
    stopped("EOS_LEDGER_TRUNCATED", lambda: verify_last(brokers.ports(), 0))
    committed(brokers, aborted=False)
    verify_last(brokers.ports(), 0)
    error = stopped("EOS_LEDGER_TRUNCATED", lambda: verify_last(brokers.ports(), 1))
    assert "micro-batch 1 is committed" in error.message and "is micro-batch 0" in error.message


@pytest.mark.parametrize("version", [0, 2])
@on_brokers
def test_a_run_that_had_nothing_to_do_finds_no_head_of_a_query_that_had_one(brokers: Brokers, version: int):
    """It has committed nothing. The brokers know that the query has: a commit that nobody may have looked at."""
    brokers.cluster.transaction_version = version
    committed(brokers, aborted=True)
    log = brokers.cluster.log(LEDGER)
    log.begin = log.end
    for is_stopped in (False, True):
        look = partial(verify_last, brokers.ports(), stopped=is_stopped)
        error = stopped("EOS_LEDGER_HEAD_LOST", look)
        assert "spark-eos verify" in error.hint and "last commit" in error.message
    stopped("EOS_LEDGER_HEAD_MISSING", lambda: verify_last(brokers.ports(), 0))


@on_brokers
def test_too_many_places_that_wait_stop_the_query(brokers: Brokers, monkeypatch: pytest.MonkeyPatch):
    """Something holds readers for hours, and they would never be looked at."""
    monkeypatch.setattr(verify_module, "MOST_BLOCKED", 0)
    brokers.another_program()
    report = committed(brokers, aborted=False)
    stopped("EOS_OUTCOME_UNCLEAR", lambda: verify_visible(brokers.ports(), starts_of(report.decision)))


@on_brokers
def test_retention_after_the_commit_is_no_loss(brokers: Brokers):
    """Readers had their time."""
    report = committed(brokers, aborted=False)
    brokers.taken_by_retention()
    assert verify_visible(brokers.ports(), starts_of(report.decision)) == {}


@on_brokers
def test_every_place_of_a_transaction_is_looked_at_and_none_of_those_with_a_verdict(brokers: Brokers):
    """A start has looked at those."""
    decision = committed(brokers, aborted=False).decision
    assert decision is not None
    (written,) = decision.written
    begins = tuple(replace(written.probe, partition=number) for number in range(3))
    several = replace(decision, written=(replace(written, begins=begins),))
    assert set(starts_of(several)) == {(written.pair, probe) for probe in begins}
    assert starts_of(several.judged({written.pair: Verdict.COMMITTED})) == {}
    assert starts_of(None) == {}


@on_brokers
def test_a_look_at_an_earlier_decision_is_none_at_the_last_one(brokers: Brokers):
    """Another process of the run has committed that since, and its look was cut short."""
    first = committed(brokers, aborted=False)
    committed(brokers, aborted=True, number=1)
    head = brokers.ports().ledger.read()
    seen = Verified(first.decision, {})
    stopped(MISSING, lambda: commit(brokers.ports(), brokers.prepared(head, 2), verified=seen))
