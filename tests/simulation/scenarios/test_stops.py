"""What ends a run, provoked step by step on the simulated cluster, and what is left behind by each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from spark_eos.errors import ProtocolStop, Superseded, Unclear, stop
from spark_eos.protocol.abort import abort, abort_all, clear_listed, close, sweep, undecided
from spark_eos.protocol.commit import commit
from spark_eos.protocol.head import ForeachBatchWrite, Pair, Verdict
from spark_eos.protocol.names import TaskId, ledger_name, task_name
from spark_eos.protocol.ports import EndTxnAnswer, Ports, State
from spark_eos.protocol.task import MicroBatch, TaskReport, Work
from tests.simulation.by_hand import TIMEOUT_MS, Brokers, meanwhile, on_brokers, stopped
from tests.simulation.coordinator import LAST_EPOCH, WEEK_MS
from tests.simulation.faults import Fault, Strike
from tests.simulation.ledger import LEDGER, PREFIX, QUERY
from tests.simulation.partition_log import PartitionLog


@on_brokers
def test_a_run_that_was_closed_decides_nothing(brokers: Brokers):
    """A commit that goes on after Spark has aborted the micro-batch finds the run closed; its rows are aborted."""
    batch = brokers.prepared(brokers.open("r1"))
    abort(brokers.ports(), "r1", 0)
    error = stopped("EOS_RUN_CLOSED", lambda: commit(brokers.ports(), batch))
    assert isinstance(error, Superseded)
    assert error.restart_helps
    (pair,) = batch.pairs
    assert brokers.state(pair) is State.COMPLETE_ABORT
    assert commit(brokers.ports(), brokers.prepared(brokers.open("r2"))).transactions == 1


@on_brokers
def test_a_run_that_was_replaced_decides_nothing(brokers: Brokers):
    """The older of two starts stops and names the newer one, which goes on."""
    batch = brokers.prepared(brokers.open("r1"))
    newer = brokers.open("r2")
    error = stopped("EOS_SUPERSEDED", lambda: commit(brokers.ports(), batch))
    assert (error.parameters["run"], error.parameters["by"]) == ("r1", "r2")
    assert commit(brokers.ports(), brokers.prepared(newer)).transactions == 1


@on_brokers
def test_a_ledger_that_is_taken_away_each_time_is_busy(brokers: Brokers):
    """A run that never gets to publish itself stops, and has published nothing."""
    own = brokers.ports("open.settled", brokers.take_the_ledger)
    error = stopped("EOS_LEDGER_BUSY", lambda: brokers.open("r1", own=own))
    assert isinstance(error, Unclear)
    assert error.restart_helps
    assert brokers.heads == []
    assert brokers.open("r1").generation == 1


@on_brokers
def test_a_decision_that_cannot_be_published_is_unclear(brokers: Brokers):
    """The query stops without a decision and leaves its rows to its next run, which writes the micro-batch."""
    batch = brokers.prepared(brokers.open("r1"))
    before = brokers.heads
    own = brokers.ports("commit.verified", brokers.take_the_ledger)
    error = stopped("EOS_DECISION_UNCLEAR", lambda: commit(own, batch))
    assert isinstance(error, Unclear)
    assert error.restart_helps
    assert brokers.heads == before
    assert commit(brokers.ports(), brokers.prepared(brokers.open("r2"))).transactions == 1


@on_brokers
def test_a_decided_transaction_that_no_coordinator_ends_is_unclear(brokers: Brokers):
    """Its outcome is not guessed: the query stops, and the next run commits that very transaction."""
    batch = brokers.prepared(brokers.open("r1"))
    (pair,) = batch.pairs
    end = brokers.cluster.end
    own = brokers.ports("commit.decided", brokers.end_transactions_no_more)
    error = stopped("EOS_OUTCOME_UNCLEAR", lambda: commit(own, batch))
    assert isinstance(error, Unclear)
    assert error.restart_helps
    assert pair.id in error.message
    assert brokers.state(pair) is State.ONGOING
    brokers.cluster.end = end  # type: ignore[method-assign]
    decision = brokers.open("r2").decision
    assert decision is not None
    assert [w.verdict for w in decision.written] == [Verdict.COMMITTED]
    assert brokers.state(pair) is State.COMPLETE_COMMIT


@pytest.mark.parametrize("other_is_open", [False, True])
@on_brokers
def test_a_write_that_is_repeated_is_committed(brokers: Brokers, other_is_open: bool):
    """Within foreachBatch: it failed when it had decided, and the abort failed, so that the run goes on. Also where
    another producer's transaction keeps readers from what it wrote."""
    batch, again = decided_and_repeated(brokers, other_is_open=other_is_open)
    assert commit(brokers.ports(), again).replayed
    (pair,) = batch.pairs
    assert brokers.state(pair) is State.COMPLETE_COMMIT


@on_brokers
def test_a_write_that_is_repeated_and_lost_is_repaired(brokers: Brokers):
    """Its transaction has expired meanwhile: nothing is missing for good, and the next run writes it again."""
    batch, again = decided_and_repeated(brokers)
    (pair,) = batch.pairs
    brokers.end(pair, commit=False)
    assert stopped("EOS_TRANSACTION_LOST", lambda: commit(brokers.ports(), again)).restart_helps
    decision = brokers.open("r2").decision
    assert decision is not None and len(decision.lost) == 1


def decided_and_repeated(brokers: Brokers, *, other_is_open: bool = False) -> tuple[MicroBatch, MicroBatch]:
    """A write that was killed right after its decision, and the same one by tasks that only count."""

    head = brokers.open("r1", write=ForeachBatchWrite("q", "s"))
    if other_is_open:
        brokers.attempt("another-program")
    batch = brokers.prepared(head)
    brokers.dies("commit.decided", batch)
    return batch, replace(batch, reports=(TaskReport(Work.COUNT, 0, 1, 1),))


def refused(brokers: Brokers, own: Ports) -> Ports:
    """These ports, where this user may abort nothing."""

    class Refusing:
        def __getattr__(self, name: str) -> object:
            return getattr(own.coordinator, name)

        def end(self, pairs: dict[Pair, int], *, commit: bool) -> Mapping[Pair, EndTxnAnswer]:
            if not commit:
                raise stop("EOS_UNAUTHORIZED", operation="end any", rights="none")
            return own.coordinator.end(pairs, commit=commit)

        def fence(self, names: Collection[str]) -> Collection[str]:
            raise stop("EOS_UNAUTHORIZED", operation="fence any", rights="none")

    return replace(own, coordinator=Refusing())  # type: ignore[arg-type]


@on_brokers
def test_leftovers_that_cannot_be_aborted_stop_no_commit(brokers: Brokers):
    """All that was decided is committed; how many stay open is told."""
    head = brokers.open("r1")
    batch = brokers.prepared(head)
    brokers.attempt(task_name(PREFIX, QUERY, TaskId(head.generation, 0, 0, 1)))
    report = commit(refused(brokers, brokers.ports()), batch)
    assert (report.leftovers, report.still_open) == (1, 1)


@on_brokers
def test_a_transaction_with_too_little_time_left_is_not_decided(brokers: Brokers):
    """It would expire before it is committed: it is aborted, and the micro-batch stays undecided."""
    batch = brokers.prepared(brokers.open("r1"))
    (pair,) = batch.pairs
    before = brokers.heads
    brokers.world.sleep(TIMEOUT_MS - 20_000)
    error = stopped("EOS_TRANSACTION_TOO_OLD", lambda: commit(brokers.ports(), batch))
    assert isinstance(error, ProtocolStop)
    assert f"ms of its {TIMEOUT_MS} ms left" in error.message
    assert "'transaction.timeout.ms'" in error.hint
    assert brokers.heads == before
    assert brokers.state(pair) is State.COMPLETE_ABORT


@on_brokers
def test_a_ledger_that_was_lost_before_any_task_had_begun(brokers: Brokers):
    """Only the ledger's own id tells of the head that was there, and to take the ledger would end that: so each start
    stops before it does."""
    brokers.open("r1")
    brokers.cluster.logs[LEDGER] = PartitionLog()
    for run in ("r2", "r3"):
        stopped("EOS_LEDGER_HEAD_LOST", lambda run=run: brokers.open(run))


@on_brokers
def test_a_first_run_that_published_nothing_is_no_loss(brokers: Brokers):
    """It took the ledger and died."""
    brokers.take_the_ledger()
    assert brokers.open("r2").generation == 1


@pytest.mark.parametrize(
    ("transaction_version", "first_epoch", "condition"),
    [
        (1, 0, "EOS_DECISION_UNCLEAR"),
        (2, 0, "EOS_DECISION_UNCLEAR"),
        (1, LAST_EPOCH, "EOS_DECISION_UNCLEAR"),
        (2, LAST_EPOCH, "EOS_LEDGER_TRUNCATED"),
    ],
)
@on_brokers
def test_a_transaction_that_is_committed_was_decided(
    brokers: Brokers, transaction_version: int, first_epoch: int, condition: str
):
    """The ledger as it was read may be of a while ago. To say that a timeout took the rows would mislead, and nothing
    of what may be decided is aborted. After the last epoch, an end takes the first one of another producer id: that
    does not prove that the head is the newest, so the tasks' transactions are asked, which say that it is not."""
    brokers.cluster.transaction_version = transaction_version
    brokers.cluster.first_epoch = first_epoch
    batch = brokers.prepared_by_two(brokers.open("r1"))
    one, other = sorted(batch.pairs, key=lambda pair: pair.id)
    brokers.end(one, commit=True)
    error = stopped(condition, lambda: commit(brokers.ports(), batch))
    assert one.id in error.message or condition == "EOS_LEDGER_TRUNCATED"
    assert brokers.state(other) is State.ONGOING


@on_brokers
def test_a_checkpoint_that_passed_a_lost_transaction_stops(brokers: Brokers):
    """Going on would lose its rows: neither a new run nor a commit of the present one goes past it."""
    batch = brokers.prepared(brokers.open("r1"))
    own = brokers.ports("commit.decided", lambda: brokers.world.sleep(2 * TIMEOUT_MS))
    assert stopped("EOS_TRANSACTION_LOST", lambda: commit(own, batch)).restart_helps
    (pair,) = batch.pairs
    assert brokers.state(pair) is State.COMPLETE_ABORT
    before = brokers.heads
    error = stopped("EOS_CHECKPOINT_AHEAD", lambda: brokers.open("r2", batch=1))
    assert isinstance(error, ProtocolStop)
    assert error.parameters["batch"] == 1
    assert not error.restart_helps
    assert brokers.heads == before
    later = brokers.prepared(brokers.open("r3", batch=0), batch=1)
    stopped("EOS_CHECKPOINT_AHEAD", lambda: commit(brokers.ports(), later))


@on_brokers
def test_a_transaction_that_was_lost_stays_so_where_nobody_can_tell_of_another_one(brokers: Brokers):
    """Another program keeps readers from that one, and its coordinator has forgotten it. It counts as committed, as
    Spark has passed it; the lost one does not."""
    brokers.another_program()
    batch = brokers.prepared_by_two(brokers.open("r1"))
    brokers.dies("commit.decided", batch)
    brokers.end(batch.written[0].pair, commit=False)
    decision = brokers.open("r2").decision
    assert decision is not None and [w.verdict for w in decision.written] == [Verdict.LOST, None]
    brokers.world.now += WEEK_MS + 1
    brokers.cluster.expire()
    stopped("EOS_CHECKPOINT_AHEAD", lambda: brokers.open("r3", batch=1))


@pytest.mark.parametrize(
    ("executors", "driver", "passed_ms"),
    [
        (-1_200_000, 0, TIMEOUT_MS - 20_000),
        (0, 1_200_000, TIMEOUT_MS - 20_000),
        (600_000, 1_200_000, TIMEOUT_MS - 20_000),
        (-1_200_000, 0, 0),
    ],
    ids=["executors behind", "driver ahead", "both ahead", "after long stages"],
)
@on_brokers
def test_a_transaction_that_is_too_old_by_clocks_that_are_off(brokers: Brokers, executors, driver, passed_ms):
    """It does not pass for fresh, and what is wrong with the clocks comes first. A driver that planned the micro-batch
    an hour ago cannot tell its age; that the two times differ tells of the clocks."""
    head, planned_ms = brokers.open("r1"), brokers.world.now
    batch = brokers.prepared(head)
    (report,) = batch.reports
    report = replace(report, began_ms=report.began_ms + executors)
    batch = replace(batch, reports=(report,), planned_ms=planned_ms if passed_ms else planned_ms - 3_600_000)
    brokers.world.sleep(passed_ms)
    own = replace(brokers.ports(), now_ms=lambda: brokers.world.now + driver)
    error = stopped("EOS_TRANSACTION_TOO_OLD", lambda: commit(own, batch))
    assert error.hint.startswith("Set the clocks")
    assert "'transaction.timeout.ms'" in error.hint


@on_brokers
def test_a_decision_that_its_own_commit_has_not_heard_of_is_not_aborted(brokers: Brokers):
    """The answer to its publication is lost, and Spark's abort has closed the run by the time that it is asked for
    again: what the commit finds replaced has decided its transaction, which the next run commits."""
    batch, world = brokers.prepared(brokers.open("r1")), brokers.world
    (pair,), before = batch.pairs, len(brokers.heads)

    def close() -> None:
        world.wait(lambda: len(brokers.heads) > before)
        abort(brokers.ports(), "r1", 0)

    world.spawn("abort", "driver", close)
    world.add(Fault(0, Strike.ANSWER_LOST, at=f"end {ledger_name(PREFIX, QUERY)}"))
    stopped("EOS_RUN_CLOSED", lambda: commit(brokers.ports(), batch))
    assert brokers.state(pair) is State.ONGOING
    decision = brokers.open("r2").decision
    assert decision is not None
    assert [(w.pair, w.verdict) for w in decision.written] == [(pair, Verdict.COMMITTED)]


@on_brokers
def test_a_run_that_is_replaced_while_it_is_closed_leaves_the_other_one_alone(brokers: Brokers):
    """Spark's abort comes late: the next start has opened the query by the time that the ledger is taken."""
    brokers.open("r1")
    own, heads = brokers.ports(), []
    meanwhile(own.coordinator, "of_ledger", lambda: heads or heads.append(brokers.open("r2")))
    assert abort(own, "r1", 0) == ()
    assert brokers.ports().ledger.read() == heads[0]
    assert commit(brokers.ports(), brokers.prepared(heads[0])).transactions == 1


@on_brokers
def test_what_is_decided_before_the_query_is_closed_is_not_cleared(brokers: Brokers):
    """It was open and undecided when it was looked for; the run that is alive has decided it since."""
    head = brokers.open("r1")
    left = brokers.attempt(task_name(PREFIX, QUERY, TaskId(head.generation, 1, 0)))
    batch = brokers.prepared(head)
    (pair,) = batch.pairs
    found = undecided(brokers.ports(), head)
    assert found == {left, pair}
    brokers.dies("commit.decided", batch)
    closed = close(brokers.ports(), "r1")
    assert closed is not None
    assert not clear_listed(brokers.ports(), closed, found)
    assert (brokers.state(left), brokers.state(pair)) == (State.COMPLETE_ABORT, State.ONGOING)


@on_brokers
def test_a_sweep_says_what_it_has_found(brokers: Brokers):
    """Something, or nothing: the run has not gone on, so that whoever sweeps looks again."""
    head = brokers.open("r1")
    commit(brokers.ports(), brokers.prepared(head))
    late = brokers.attempt(task_name(PREFIX, QUERY, TaskId(head.generation, 0, 0, 1)))
    assert sweep(brokers.ports(), "r1", 0) == {late}
    assert brokers.state(late) is State.COMPLETE_ABORT
    assert sweep(brokers.ports(), "r1", 0) == set()


@on_brokers
def test_what_has_been_committed_is_aborted_once_and_not_waited_for(brokers: Brokers):
    """The coordinator says that it has no such transaction: that is not open, and asking again changes nothing."""
    batch = brokers.prepared(brokers.open("r1"))
    commit(brokers.ports(), batch)
    before = brokers.world.now
    assert abort_all(brokers.ports(), batch.pairs) == set()
    assert brokers.world.now - before < 100
    (pair,) = batch.pairs
    assert brokers.state(pair) is State.COMPLETE_COMMIT
