"""Transactions whose rows were taken in one partition, which their coordinator does not know: what is said of them, and
how an operator ends them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_eos.errors import Unclear
from spark_eos.protocol.age import AGED_MS
from spark_eos.protocol.commands import settle_decided
from spark_eos.protocol.commit import commit
from spark_eos.protocol.end import VALID_MS, abort_broken, settle
from spark_eos.protocol.head import ForeachBatchWrite, Pair, Probe, Verdict
from spark_eos.protocol.ports import Ports, State
from tests.simulation.by_hand import BESIDE, OUTPUT, Brokers, meanwhile, on_brokers, stopped
from tests.simulation.codes import OK
from tests.simulation.ledger import QUERY
from tests.simulation.scenarios.test_once_more import open_once_more


def cut_off(brokers: Brokers, pair: Pair) -> None:
    """An unclean election takes all of the transaction there."""
    log = brokers.cluster.log(OUTPUT)
    log.cut_rows(log.end - log.open[pair.producer_id])
    log.append(99, 0, 0, (0, 9, "another"))


def created_anew(brokers: Brokers, pair: Pair) -> None:
    """The topic was deleted and created, and nobody has written to it since: its leader names no producer."""
    del brokers.cluster.logs[OUTPUT]


TAKEN = pytest.mark.parametrize(
    ("take", "said"),
    [
        (Brokers.aborted_by_hand, "it was aborted there"),
        (Brokers.taken_by_retention, "retention has moved"),
        (created_anew, "the topic was deleted"),
        (cut_off, "the partition has lost its newest records"),
    ],
)


@TAKEN
@on_brokers
def test_rows_that_are_gone_are_not_decided_on(brokers: Brokers, take: Callable[[Brokers, Pair], None], said: str):
    """A transaction that is a minute old is looked at; the replay writes its rows again."""
    batch = brokers.prepared(brokers.open("r1"))
    (pair,) = batch.pairs
    take(brokers, pair)
    brokers.world.now += VALID_MS
    error = stopped("EOS_TRANSACTION_BROKEN", lambda: commit(brokers.ports(), batch))
    assert said in error.message
    assert error.restart_helps
    assert brokers.state(pair) is State.COMPLETE_ABORT
    commit(brokers.ports(), brokers.prepared(brokers.open("r2")))
    assert brokers.visible() == 1


@TAKEN
@on_brokers
def test_a_decision_whose_rows_are_gone_is_not_committed(
    brokers: Brokers, take: Callable[[Brokers, Pair], None], said: str
):
    """However soon the next run comes. When the rest is aborted, as the hint says, the replay writes all of it."""
    pair = brokers.decided().pair
    take(brokers, pair)
    error = stopped("EOS_DECISION_BROKEN", lambda: brokers.open("r2"))
    assert said in error.message
    assert "recover --query" in error.hint and "--settle-only --abort-broken" in error.hint
    assert brokers.state(pair) is State.ONGOING
    stopped("EOS_DECISION_BROKEN", lambda: settle_decided(brokers.ports(), QUERY))
    ended = settle_decided(brokers.ports(), QUERY, and_abort_broken=True)
    assert dict(ended.verdicts) == {pair: Verdict.LOST}
    (lost,) = brokers.open("r3").decision.written
    assert lost.verdict is Verdict.LOST


@on_brokers
def test_rows_with_old_timestamps_are_looked_for_at_once(brokers: Brokers):
    """Retention goes by timestamps: it may take rows of a transaction that has just begun."""
    brokers.world.now += AGED_MS
    batch = brokers.prepared(brokers.open("r1"))
    brokers.taken_by_retention()
    aged = tuple(replace(report, oldest_ms=0) for report in batch.reports)
    error = stopped("EOS_TRANSACTION_BROKEN", lambda: commit(brokers.ports(), replace(batch, reports=aged)))
    assert "retention.ms" in error.hint


@pytest.mark.parametrize("noted", [True, False])
@on_brokers
def test_a_partition_whose_rows_were_all_refused(brokers: Brokers, noted: bool):
    """It is in the transaction, and was never open there. Without that note nobody could tell it from one in which
    somebody has aborted the transaction: neither the commit nor the next run."""
    batch = brokers.prepared(brokers.open("r1"))
    (pair,) = batch.pairs
    assert brokers.cluster.add(pair.id, pair.producer_id, pair.epoch, BESIDE).code == 0
    brokers.cluster.log(BESIDE).mark(1, 0, commit=True)  # somebody else has written there
    (report,) = batch.reports
    written = replace(report.written, empty=(BESIDE,) if noted else ())
    batch = replace(batch, reports=(replace(report, written=written),))
    brokers.world.now += VALID_MS
    if not noted:
        stopped("EOS_TRANSACTION_BROKEN", lambda: commit(brokers.ports(), batch))
        return
    brokers.dies("commit.decided", batch)
    brokers.open("r2")
    assert brokers.state(pair) is State.COMPLETE_COMMIT


@on_brokers
def test_rows_that_were_looked_for_are_not_looked_for_twice(brokers: Brokers):
    """Within a minute of their decision, they are committed."""
    brokers.world.now += AGED_MS
    batch = brokers.prepared(brokers.open("r1"))
    aged = tuple(replace(report, oldest_ms=0) for report in batch.reports)
    looks, own = [], brokers.ports()
    meanwhile(own.data, "partition", lambda: looks.append(OUTPUT))
    assert commit(own, replace(batch, reports=aged)).transactions == 1
    assert len(looks) == 1


@pytest.mark.parametrize("set_back_ms", [0, VALID_MS])
@on_brokers
def test_a_commit_that_slept_after_its_decision_looks_again(brokers: Brokers, set_back_ms: int):
    """What was whole when it was decided may not be any more, whatever the time of day is said to be by then."""
    batch = brokers.prepared(brokers.open("r1"))
    (pair,) = batch.pairs

    def sleep() -> None:
        brokers.world.now += VALID_MS
        brokers.aborted_by_hand(pair)

    decided_ms = brokers.world.now
    own = replace(
        brokers.ports("commit.decided", sleep),
        now_ms=lambda: brokers.world.now - (set_back_ms if brokers.world.now > decided_ms + VALID_MS / 2 else 0),
    )
    stopped("EOS_DECISION_BROKEN", lambda: commit(own, batch))


@on_brokers
def test_rows_that_retention_took_around_the_commit_cannot_be_told(brokers: Brokers):
    """They were there when it began, and readers may have seen them after: nobody can say that they are missing."""
    brokers.decided()
    own = brokers.ports()
    meanwhile(own.coordinator, "end", brokers.taken_by_retention, answered=True)
    error = stopped("EOS_OUTCOME_GONE", lambda: brokers.open("r2", own=own))
    assert not error.restart_helps


@pytest.mark.parametrize(("aborted", "condition"), [(False, "EOS_OUTCOME_UNCLEAR"), (True, "EOS_DECISION_BROKEN")])
@on_brokers
def test_a_leader_that_does_not_answer_is_no_proof(brokers: Brokers, aborted: bool, condition: str):
    """Neither that the rows are there, nor that they are not. So it is with one that has forgotten its producers, a day
    after an operator has aborted it there, and nothing else was written; but then, the log tells."""
    pair = brokers.decided().pair
    if aborted:
        brokers.aborted_by_hand(pair)
    own = brokers.ports()
    own.data.partition = lambda *_: None
    error = stopped(condition, lambda: brokers.open("r2", own=own))
    assert isinstance(error, Unclear) is not aborted


def ending_late(brokers: Brokers, happens: Callable[[], object], ms: int = VALID_MS) -> Ports:
    """Whose EndTxn is under way for so long, by default for a minute, in which something happens."""
    own = brokers.ports()

    def late() -> None:
        brokers.world.now += ms
        happens()

    meanwhile(own.coordinator, "end", late)
    return own


@pytest.mark.parametrize(
    ("take", "condition"),
    [(Brokers.aborted_by_hand, "EOS_ROWS_MISSING"), (Brokers.taken_by_retention, "EOS_OUTCOME_GONE")],
)
@on_brokers
def test_an_end_that_comes_late_is_not_believed(
    brokers: Brokers, take: Callable[[Brokers, Pair], None], condition: str
):
    """The coordinator says 0, and the rows were taken while the request was under way; by retention before the end or
    after it, which nobody can tell."""
    batch = brokers.prepared(brokers.open("r1"))
    (pair,) = batch.pairs
    own = ending_late(brokers, lambda: take(brokers, pair))
    error = stopped(condition, lambda: commit(own, batch))
    assert not error.restart_helps
    assert brokers.state(pair) is State.COMPLETE_COMMIT
    assert brokers.visible() == 0


@on_brokers
def test_a_micro_batch_of_just_under_a_minute(brokers: Brokers):
    """Whose end takes it beyond that: it is looked at before, so that others who hold readers are no reason to stop."""
    brokers.another_program()
    batch = brokers.prepared(brokers.open("r1"))
    brokers.world.now += VALID_MS - 5_000
    assert commit(ending_late(brokers, lambda: None, 6_000), batch).transactions == 1


@on_brokers
def test_an_end_right_after_the_look(brokers: Brokers):
    """What the look finds aborted in one partition, and another run's request commits before the look is over, was not
    held as a whole: all places of the decision are looked at."""
    pair, batch = brokers.prepared_in_two_partitions()
    brokers.dies("commit.decided", batch)
    brokers.cluster.log(BESIDE).mark(pair.producer_id, pair.epoch, commit=False)
    own, asked = brokers.ports(), []

    def second() -> None:
        asked.append(pair)
        if len(asked) == 2:
            brokers.end(pair, commit=True)

    meanwhile(own.coordinator, "describe", second)
    error = stopped("EOS_ROWS_MISSING", lambda: brokers.open("r2", own=own))
    assert "output-1" in error.message


@on_brokers
def test_the_next_commit_of_several_writes_looks_at_one_place(brokers: Brokers):
    """The one before has returned; to look at every place of it would cost a request for each, in each micro-batch."""
    sink = ForeachBatchWrite("q", "s")
    batch = brokers.prepared(brokers.open("r1", write=sink))
    (report,) = batch.reports
    begins = tuple(replace(report.written.probe, partition=number) for number in range(30))
    batch = replace(batch, reports=(replace(report, written=replace(report.written, begins=begins)),))
    commit(brokers.ports(), batch)
    own, looks = brokers.ports(), []
    meanwhile(own.data, "look", lambda: looks.append(True))
    commit(own, brokers.prepared(brokers.open("r1", 1, write=sink), 1))
    assert len(looks) == 1


@pytest.mark.parametrize("held", [True, False])
@on_brokers
def test_an_end_that_comes_late_where_nobody_can_look(brokers: Brokers, held: bool):
    """Another program's transaction holds readers, for longer than a commit waits; without it, the rows are seen."""
    other = brokers.another_program()
    batch = brokers.prepared(brokers.open("r1"))
    own = ending_late(brokers, lambda: None if held else other.end(commit=False))
    if not held:
        assert commit(own, batch).transactions == 1
        return
    error = stopped("EOS_OUTCOME_GONE", lambda: commit(own, batch))
    assert not error.restart_helps
    assert f"{OUTPUT[0]}-{OUTPUT[1]}" in error.message
    assert "find-hanging" in error.hint
    # What the next run finds is ended, by whomever: there, it is no reason to stop that others hold readers.
    assert brokers.open("r2").run == "r2"


@on_brokers
def test_what_others_have_ended_while_it_was_looked_at_is_no_longer_held(brokers: Brokers):
    """Its leader shows that it is open no more, as another run has committed it: retention may have its rows."""
    written = brokers.decided()
    own = brokers.ports()

    def late() -> None:
        if brokers.state(written.pair) is State.ONGOING:
            brokers.end(written.pair, commit=True)
            brokers.taken_by_retention()

    meanwhile(own.data, "partition", late)
    assert settle(own, [written]) == {written.pair: Verdict.COMMITTED}


@on_brokers
def test_rows_that_are_about_to_be_old_are_looked_for_before_their_end(brokers: Brokers):
    """However young their transaction is: retention may take them between the decision and that."""
    brokers.world.now += AGED_MS - 5_000
    batch = brokers.prepared(brokers.open("r1"))
    aging = tuple(replace(report, oldest_ms=0) for report in batch.reports)
    own = brokers.ports("commit.decided", brokers.taken_by_retention)
    stopped("EOS_DECISION_BROKEN", lambda: commit(own, replace(batch, reports=aging)))


# How an operator ends them

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
def test_what_the_log_shows_of_one_transaction_is_not_said_of_another(brokers: Brokers):
    """The leader does not answer, and somebody has aborted the first one there. The second one is open and whole."""
    batch = brokers.prepared_by_two(brokers.open("r1"))
    brokers.dies("commit.decided", batch)
    brokers.aborted_by_hand(batch.written[0].pair)
    own = brokers.ports()
    own.data.partition = lambda *_: None
    error = stopped("EOS_OUTCOME_UNCLEAR", lambda: abort_broken(own, batch.written))
    assert isinstance(error, Unclear)
    assert {brokers.state(pair) for pair in batch.pairs} == {State.ONGOING}


@on_brokers
def test_rows_are_looked_for_where_the_leaders_have_them(brokers: Brokers):
    """The head leaves out long lists of partitions. Somebody aborts the transaction in one of them between the look at
    the leaders and its end."""
    pair, batch = brokers.prepared_in_two_partitions()
    brokers.dies("commit.decided", batch)
    own = brokers.ports()
    meanwhile(own.coordinator, "end", lambda: brokers.cluster.log(BESIDE).mark(pair.producer_id, 0, commit=False))
    stopped("EOS_ROWS_MISSING", lambda: settle(own, [replace(w, begins=()) for w in batch.written]))
    assert visible(brokers) == [1, 0]


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
