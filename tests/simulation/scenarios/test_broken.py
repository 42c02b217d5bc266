"""Decided transactions that have lost rows in one partition: what is said of them, and how an operator ends them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_eos.protocol.commands import settle_decided
from spark_eos.protocol.commit import commit
from spark_eos.protocol.end import VALID_MS, abort_broken, settle
from spark_eos.protocol.head import Pair, Probe, Verdict
from spark_eos.protocol.ports import State
from tests.simulation.by_hand import BESIDE, OUTPUT, Brokers, meanwhile, on_brokers, stopped
from tests.simulation.codes import OK
from tests.simulation.ledger import QUERY
from tests.simulation.scenarios.test_once_more import open_once_more

WEEK_MS = 8 * 24 * 3_600_000
VERSIONS = pytest.mark.parametrize("version", [1, 2])


def visible(brokers: Brokers) -> list[int]:
    return [sum(bool(record.visible) for record in brokers.cluster.log(place).records) for place in (OUTPUT, BESIDE)]


def late_add(brokers: Brokers, pair: Pair) -> int:
    """A late request's answer."""
    return brokers.cluster.add(pair.id, pair.producer_id, pair.epoch, BESIDE).code


@VERSIONS
@on_brokers
def test_what_was_aborted_in_one_partition_and_committed_is_not_written_again(brokers: Brokers, version: int):
    """The other partition shows the commit. To take it for lost would write that one's row twice."""
    brokers.cluster.transaction_version = version
    pair, batch = brokers.prepared_in_two_partitions()
    brokers.aborted_by_hand(pair)
    brokers.dies("commit.ended", batch)
    assert visible(brokers) == [0, 1]
    if version == 1:
        assert late_add(brokers, pair) == OK
        stopped("EOS_ROWS_MISSING", lambda: settle_decided(brokers.ports(), QUERY, and_abort_broken=True))
    brokers.world.sleep(WEEK_MS)
    brokers.cluster.expire()
    stopped("EOS_ROWS_MISSING", lambda: brokers.open("r2"))


@VERSIONS
@on_brokers
def test_what_retention_has_taken_of_an_open_transaction_is_written_again(brokers: Brokers, version: int):
    """The abort of the rest is told by its marker, which comes after what was taken."""
    brokers.cluster.transaction_version = version
    pair, batch = brokers.prepared_in_two_partitions()
    brokers.dies("commit.decided", batch)
    brokers.taken_by_retention()
    stopped("EOS_DECISION_BROKEN", lambda: brokers.open("r2"))
    assert dict(settle_decided(brokers.ports(), QUERY, and_abort_broken=True).verdicts) == {pair: Verdict.LOST}
    assert brokers.open("r3").decision.written[0].verdict is Verdict.LOST


@VERSIONS
@on_brokers
def test_who_still_commits_what_an_operator_has_aborted_is_told(brokers: Brokers, version: int):
    """A driver that is alive between its decision and the end. A late request opens nothing that it could commit."""
    brokers.cluster.transaction_version = version
    pair, batch = brokers.prepared_in_two_partitions()

    def meanwhile() -> None:
        brokers.aborted_by_hand(pair)
        abort_broken(brokers.ports(), batch.written)
        assert late_add(brokers, pair) != OK

    stopped("EOS_TRANSACTION_LOST", lambda: commit(brokers.ports("commit.decided", meanwhile), batch))
    assert visible(brokers) == [0, 0]


@on_brokers
def test_all_that_are_broken_are_aborted_at_once(brokers: Brokers):
    """Also where the leader has forgotten its producers, so that the log has to tell of each."""
    batch = brokers.prepared_by_two(brokers.open("r1"))
    brokers.dies("commit.decided", batch)
    for pair in batch.pairs:
        brokers.aborted_by_hand(pair)
    own, began_ms = brokers.ports(), brokers.world.now
    own.data.partition = lambda *_: None
    ended = settle_decided(own, QUERY, and_abort_broken=True)
    assert dict(ended.verdicts) == dict.fromkeys(batch.pairs, Verdict.LOST)
    assert brokers.world.now < began_ms + 1_000


@on_brokers
def test_what_is_open_in_any_partition_was_not_committed(brokers: Brokers):
    """Retention has passed one, and an operator has aborted the other; where the end does not fence, an open one in
    which nothing is open may have been committed before."""
    brokers.cluster.transaction_version = 1
    pair, batch = brokers.prepared_in_two_partitions()
    brokers.dies("commit.decided", batch)
    brokers.cluster.log(BESIDE).mark(pair.producer_id, pair.epoch, commit=False)
    brokers.taken_by_retention()
    stopped("EOS_DECISION_BROKEN", lambda: brokers.open("r2"))
    assert brokers.state(pair) is State.ONGOING


@on_brokers
def test_a_decision_behind_an_earlier_transaction_without_its_marker_is_left_to_an_operator(brokers: Brokers):
    """It begins before its task's first row. It has all its rows, and whatever ends it ends the earlier one, too, of
    which nobody knows the outcome."""
    pair, batch = brokers.prepared_in_two_partitions()
    brokers.dies("commit.decided", batch)
    log = brokers.cluster.log(BESIDE)
    later = [replace(w, begins=tuple(_one_on(probe) for probe in w.begins)) for w in batch.written]
    error = stopped("EOS_DECISION_BROKEN", lambda: settle(brokers.ports(), later))
    assert "would not end alone" in error.message and "--start-offset 0" in error.hint
    assert (error.parameters["topic"], error.parameters["partition"], error.parameters["offset"]) == (*BESIDE, 0)
    stopped("EOS_DECISION_BROKEN", lambda: abort_broken(brokers.ports(), later))
    assert log.is_open(pair.producer_id, pair.epoch)
    log.mark(pair.producer_id, pair.epoch, commit=False)
    abort_broken(brokers.ports(), later)
    assert settle(brokers.ports(), later) == {pair: Verdict.LOST}


def _one_on(probe: Probe) -> Probe:
    is_behind = (probe.topic, probe.partition) == BESIDE
    return replace(probe, offset=probe.offset + 1) if is_behind else probe


@on_brokers
def test_a_stall_between_the_looks_at_two_clocks(brokers: Brokers):
    """It counts: what was begun a minute ago is looked at before its end, whatever came between."""
    batch = brokers.prepared(brokers.open("r1"))
    (pair,) = batch.pairs
    verified = False

    def now_ms() -> int:
        nonlocal verified
        seen = brokers.world.now
        if not verified:
            verified = True
            brokers.world.now += VALID_MS - 10_000
        return seen

    def later() -> None:
        brokers.world.now += VALID_MS - 15_000
        brokers.aborted_by_hand(pair)

    own = replace(brokers.ports("commit.decided", later), now_ms=now_ms)
    stopped("EOS_DECISION_BROKEN", lambda: commit(own, batch))


@on_brokers
def test_who_was_overtaken_while_it_began_does_not_say_that_the_ledger_is_lost(brokers: Brokers):
    """It has taken the ledger and read nothing; before it asks what the coordinators know, another start publishes."""
    own, asked = brokers.ports(), []

    def overtaken() -> None:
        asked.append(True)
        if len(asked) == 2:
            brokers.prepared(brokers.open("r1"))

    meanwhile(own.coordinator, "known", overtaken)
    assert brokers.open("r2", own=own).run == "r2"
    assert len(asked) == 2


@on_brokers
def test_a_commit_shows_in_any_partition_of_its_transaction(brokers: Brokers):
    """Where retention has emptied the one with its first record, another one tells."""
    brokers.cluster.transaction_version = 1
    pair, batch = brokers.prepared_in_two_partitions()
    brokers.dies("commit.ended", batch)
    open_once_more(brokers, pair)
    brokers.taken_by_retention()
    assert brokers.open("r2").decision.written[0].verdict is Verdict.COMMITTED
