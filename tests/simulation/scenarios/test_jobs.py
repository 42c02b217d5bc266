"""Batch writes and writes within foreachBatch, step by step on the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import pytest

from spark_eos.kafka.transactions import FENCING_END
from spark_eos.protocol.abort import abort, clear_late, note_unwritten
from spark_eos.protocol.commit import commit, complete
from spark_eos.protocol.head import NOBODY, BatchWrite, Decision, ForeachBatchWrite, Head, Pair
from spark_eos.protocol.names import TaskId, task_name
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.protocol.ports import Coordinator, Description, EndTxnAnswer, State
from spark_eos.protocol.task import check_target, check_time
from tests.simulation.by_hand import OUTPUT, TIMEOUT_MS, Brokers, on_brokers, stopped
from tests.simulation.client import Producer, Refused
from tests.simulation.codes import NOT_AVAILABLE
from tests.simulation.driver import BATCH
from tests.simulation.ledger import LEDGER, PREFIX, QUERY
from tests.simulation.partition_log import PartitionLog
from tests.simulation.world import Reply

JOB = BatchWrite("the job", "t")
SINK = ForeachBatchWrite("q", "s")
FIRST = Head(NOBODY, 1, (), 5, prefix=PREFIX, write=SINK)


def open_one(brokers: Brokers, run: str, batch: int = 0) -> Head:
    """One write of several within foreachBatch."""
    return open_run(brokers.ports(), NewRun(run, batch, prefix=PREFIX, write=SINK))


def open_job(brokers: Brokers, run: str, job: BatchWrite = JOB) -> Head:
    return open_run(brokers.ports(), NewRun(run, BATCH, prefix=PREFIX, write=job))


class Forgetful:
    """The coordinators, of whom nobody may ask what became of a transaction."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.ongoing, self.begin_ongoing = coordinator.ongoing, coordinator.begin_ongoing
        self.of_ledger, self.endtxn_version = coordinator.of_ledger, coordinator.endtxn_version

    def describe(self, ids: Collection[str]) -> Mapping[str, Description]:
        assert not ids
        return {}

    def end(self, pairs: Collection[Pair], *, commit: bool) -> Mapping[Pair, EndTxnAnswer]:
        assert not pairs, commit
        return {}


@on_brokers
def test_what_is_decided_and_open_is_never_passed(brokers: Brokers):
    """Spark passes a micro-batch of a stream only when its commit has returned, with all of it ended."""
    head = brokers.open("r1")
    first = brokers.prepared(head)
    brokers.dies("commit.decided", first)
    stopped("EOS_OUTCOME_UNCLEAR", lambda: commit(brokers.ports(), brokers.prepared(head, 1)))
    (pair,) = first.pairs
    assert brokers.state(pair) is State.ONGOING


@on_brokers
def test_rows_that_were_lost_and_passed_stop_every_write(brokers: Brokers):
    """By the same run, and by every later one."""
    head = open_one(brokers, "r1")
    first = brokers.prepared(head, 0)
    own = brokers.ports("commit.decided", lambda: brokers.world.sleep(2 * TIMEOUT_MS))
    stopped("EOS_TRANSACTION_LOST", lambda: commit(own, first))
    error = stopped("EOS_WRITE_LEFT_BEHIND", lambda: commit(brokers.ports(), brokers.prepared(head, 1)))
    assert "micro-batch 0 lost 1 of its 1 transactions" in error.message
    stopped("EOS_WRITE_LEFT_BEHIND", lambda: open_one(brokers, "r2", 1))
    assert not error.restart_helps


@on_brokers
def test_what_was_given_up_and_passed_stops_every_write(brokers: Brokers):
    """Until that micro-batch is written, by its replay."""
    brokers.prepared(open_one(brokers, "r1", 3), 3)
    abort(brokers.ports(), "r1", 3)
    for run in ("r1", "r2"):
        error = stopped("EOS_WRITE_LEFT_BEHIND", lambda run=run: open_one(brokers, run, 4))
        assert "The write of micro-batch 3 failed, and was not repeated" in error.message
    stopped("EOS_RUN_CLOSED", lambda: open_one(brokers, "r1", 3))
    commit(brokers.ports(), brokers.prepared(open_one(brokers, "r2", 3), 3))
    assert open_one(brokers, "r3", 4).unwritten is None


@on_brokers
def test_a_write_that_failed_before_any_run_was_opened_stops_every_later_one(brokers: Brokers):
    """The sink has no head yet; the write can be repeated, by the same start and by others."""
    note_unwritten(brokers.ports(), 3, FIRST)
    assert brokers.ports().ledger.read().write == SINK
    error = stopped("EOS_WRITE_LEFT_BEHIND", lambda: open_one(brokers, "r1", 4))
    assert "The write of micro-batch 3 failed, and was not repeated" in error.message
    commit(brokers.ports(), brokers.prepared(open_one(brokers, "r1", 3), 3))
    assert open_one(brokers, "r2", 4).unwritten is None


@on_brokers
def test_a_failure_is_not_noted_in_a_ledger_that_has_lost_the_sink(brokers: Brokers):
    """Its first head would hide the loss from the next start."""
    commit(brokers.ports(), brokers.prepared(open_one(brokers, "r1"), 0))
    brokers.cluster.logs[LEDGER] = PartitionLog()
    stopped("EOS_LEDGER_HEAD_LOST", lambda: note_unwritten(brokers.ports(), 1, FIRST))
    stopped("EOS_LEDGER_HEAD_LOST", lambda: open_one(brokers, "r2", 2))


@on_brokers
def test_a_stream_gives_nothing_up(brokers: Brokers):
    """Spark repeats its micro-batch."""
    brokers.open("r1")
    abort(brokers.ports(), "r1", 0)
    assert brokers.open("r2").given_up is None


@on_brokers
def test_a_job_that_is_completed_asks_the_brokers_for_nothing(brokers: Brokers):
    """The next run neither ends nor describes a transaction of it: they may be forgotten."""
    batch = brokers.prepared(open_job(brokers, "r1"))
    commit(brokers.ports(), batch)
    complete(brokers.ports(), "r1")
    decision = brokers.ports().ledger.read().decision
    assert (decision.rows, decision.digest, decision.written) == (1, 1, ())
    own = replace(brokers.ports(), coordinator=Forgetful(brokers.ports().coordinator))
    head = open_run(own, NewRun("r2", BATCH, prefix=PREFIX, write=JOB))
    again = replace(batch, run=head.run, reports=(replace(batch.reports[0], written=None),))
    assert commit(own, again).replayed
    before = brokers.heads
    complete(brokers.ports(), "r2")
    assert brokers.heads == before
    other = replace(again, reports=(replace(again.reports[0], rows=2),))
    stopped("EOS_REPLAY_DIVERGED", lambda: commit(own, other))


@on_brokers
def test_a_run_that_was_replaced_completes_nothing(brokers: Brokers):
    """The other one has to settle the decision itself; so has one that finds nothing decided."""
    batch = brokers.prepared(open_job(brokers, "r1"))
    complete(brokers.ports(), "r1")
    commit(brokers.ports(), batch)
    open_job(brokers, "r2")
    complete(brokers.ports(), "r1")
    assert len(brokers.ports().ledger.read().decision.written) == 1


@on_brokers
def test_what_tasks_begin_after_an_abort_is_cleared(brokers: Brokers):
    """Spark asks for the abort while it still kills them; one that has not written anything yet can write no more."""
    head = open_job(brokers, "r1")
    abort(brokers.ports(), "r1", BATCH)
    (pair,) = brokers.prepared(head).pairs
    name = task_name(PREFIX, QUERY, TaskId(head.generation, 1, 0))
    late = Producer(brokers.world, brokers.cluster, name, TIMEOUT_MS, FENCING_END)
    late.init()
    assert brokers.state(pair) is State.ONGOING
    assert not clear_late(brokers.ports())
    assert brokers.state(pair) is State.COMPLETE_ABORT
    with pytest.raises(Refused):
        late.produce(OUTPUT, (0, 0))


@on_brokers
def test_a_run_that_a_task_opens_after_the_abort_is_closed_by_the_next_look(brokers: Brokers):
    """The first abort finds no run yet; what is written in it has the newest generation, which only a close clears."""
    assert not abort(brokers.ports(), "r1", BATCH)
    (pair,) = brokers.prepared(open_job(brokers, "r1")).pairs
    clear_late(brokers.ports())
    assert brokers.state(pair) is State.ONGOING
    abort(brokers.ports(), "r1", BATCH)
    assert brokers.state(pair) is State.COMPLETE_ABORT


@on_brokers
def test_what_is_decided_keeps_its_topic(brokers: Brokers):
    """A run that is to write elsewhere is told so; one that finds nothing decided writes where it likes."""
    other = replace(JOB, topic="u")
    assert open_job(brokers, "r1").write == JOB
    head = open_job(brokers, "r2", other)
    assert head.write == other
    commit(brokers.ports(), brokers.prepared(head))
    head = open_job(brokers, "r3")
    assert head.write == replace(JOB, topic="u")
    error = stopped("EOS_JOB_DIFFERS", lambda: check_target(head, JOB))
    assert "1 rows to topic u, but would now write to topic t" in error.message
    check_target(head, other)


def test_rows_of_a_topic_column_go_to_the_topics_of_that_column():
    """Not to one topic, and the other way round."""
    head = Head("r", 1, (), 5, Decision(0, 0, 1, 1, 1, None, ()), write=replace(JOB, topic=None))
    check_target(head, replace(JOB, topic=None))
    assert "the topics of the column" in stopped("EOS_JOB_DIFFERS", lambda: check_target(head, JOB)).message


def test_a_job_that_takes_too_long_stops_when_its_first_transactions_are_gone():
    """By the clocks of two tasks; not a second earlier."""
    head = Head("r", 1, (), 5, write=JOB, opened_ms=1_000)
    check_time(head, 60_000, 61_000)
    error = stopped("EOS_JOB_TOO_LONG", lambda: check_time(head, 60_000, 61_001))
    assert "for 60 s" in error.message
    check_time(replace(head, decision=Decision(0, 0, 1, 1, 1, None, ())), 60_000, 61_001)


@pytest.mark.parametrize("opens", [open_one, Brokers.open])
@on_brokers
def test_what_spark_has_passed_within_foreach_batch_is_not_taken_for_committed(
    brokers: Brokers, opens: Callable[..., Head]
):
    """Its commit may not have returned: while nobody can tell, the next start stops. A stream's has."""
    first = brokers.prepared(opens(brokers, "r1"))
    brokers.dies("commit.decided", first)
    end, names = brokers.cluster.end, {pair.id for pair in first.pairs}
    brokers.cluster.end = (  # type: ignore[method-assign]
        lambda name, *of, **how: Reply(NOT_AVAILABLE) if name in names else end(name, *of, **how)
    )
    if opens is open_one:
        stopped("EOS_OUTCOME_UNCLEAR", lambda: opens(brokers, "r2", 1))
        assert brokers.ports().ledger.read().run == "r1"
    else:
        assert opens(brokers, "r2", 1).run == "r2"
