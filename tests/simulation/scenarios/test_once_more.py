"""What became of decided transactions where an end does not fence, so that a late request opens them once more."""

from __future__ import annotations

import pytest

from spark_eos.errors import Unclear
from spark_eos.kafka.transactions import FENCING_END, PLAIN_END
from spark_eos.protocol.commands import abort_undecided
from spark_eos.protocol.commit import commit
from spark_eos.protocol.end import settle
from spark_eos.protocol.head import Pair, Verdict
from spark_eos.protocol.names import TaskId, ledger_name, task_name
from spark_eos.protocol.ports import State
from tests.simulation.by_hand import OUTPUT, TIMEOUT_MS, Brokers, on_brokers, stopped
from tests.simulation.codes import ABORTABLE, FENCED, OK
from tests.simulation.ledger import LEDGER, PREFIX, QUERY
from tests.simulation.partition_log import PartitionLog

COMMITTED, LOST = Verdict.COMMITTED, Verdict.LOST


def open_once_more(brokers: Brokers, pair: Pair) -> None:
    """A request of the attempt that comes late; its rows come late, too, and are known."""
    pair_of = pair.id, pair.producer_id, pair.epoch
    assert brokers.cluster.add(*pair_of, OUTPUT).code == OK
    assert brokers.state(pair) is State.ONGOING
    brokers.cluster.produce(*pair_of, OUTPUT, 0, (0, 0))
    assert pair.producer_id not in brokers.cluster.log(OUTPUT).open


def time_out(brokers: Brokers) -> None:
    brokers.world.sleep(2 * TIMEOUT_MS)


@on_brokers
def test_an_abort_after_the_commit_is_not_taken_for_the_transactions_own(brokers: Brokers):
    """A late request opens a transaction of the same pair, which times out: EndTxn says 90, the description aborted."""
    brokers.cluster.transaction_version = 1
    written = brokers.decided("commit.ended")
    open_once_more(brokers, written.pair)
    time_out(brokers)
    description = brokers.ports().coordinator.describe([written.pair.id])[written.pair.id]
    assert (description.state, description.pair.epoch) == (State.COMPLETE_ABORT, written.pair.epoch + 1)
    assert settle(brokers.ports(), [written]) == {written.pair: COMMITTED}
    assert brokers.visible() == 1


@on_brokers
def test_what_is_open_once_more_has_not_lost_its_rows(brokers: Brokers):
    """It is described as open, and its partition's leader has nothing of it; so the log is asked first."""
    brokers.cluster.transaction_version = 1
    written = brokers.decided("commit.ended")
    open_once_more(brokers, written.pair)
    assert settle(brokers.ports(), [written]) == {written.pair: COMMITTED}
    assert brokers.open("r2").decision.judged({}).written[0].verdict is COMMITTED


@pytest.mark.parametrize("ended", [True, False])
@on_brokers
def test_what_is_open_once_more_after_retention_cannot_be_told(brokers: Brokers, ended):
    """Whether it was committed, or aborted in this one partition, stood where its records were."""
    brokers.cluster.transaction_version = 1
    written = brokers.decided("commit.ended" if ended else "commit.decided")
    if ended:
        open_once_more(brokers, written.pair)
    else:
        brokers.aborted_by_hand(written.pair)
    brokers.taken_by_retention()
    error = stopped("EOS_OUTCOME_GONE", lambda: settle(brokers.ports(), [written]))
    assert isinstance(error, Unclear)
    assert brokers.state(written.pair) is State.ONGOING


@on_brokers
def test_what_retention_has_taken_while_it_was_open_is_broken(brokers: Brokers):
    """Its leader still has it open from there on: no end has come, neither before nor since."""
    brokers.cluster.transaction_version = 1
    written = brokers.decided()
    brokers.taken_by_retention()
    stopped("EOS_DECISION_BROKEN", lambda: settle(brokers.ports(), [written]))


@on_brokers
def test_while_the_log_cannot_tell_nothing_is_said_to_be_broken(brokers: Brokers):
    """Something else is open before it: whether its rows are visible nobody can tell."""
    brokers.cluster.transaction_version = 1
    other = brokers.attempt("other")
    (written,) = brokers.prepared(brokers.open("r1")).written
    brokers.end(written.pair, commit=True)
    open_once_more(brokers, written.pair)
    error = stopped("EOS_OUTCOME_UNCLEAR", lambda: settle(brokers.ports(), [written]))
    assert isinstance(error, Unclear)
    brokers.end(other, commit=False)
    assert settle(brokers.ports(), [written]) == {written.pair: COMMITTED}


@pytest.mark.parametrize("timed_out", [False, True])
@on_brokers
def test_what_is_decided_is_committed_or_lost_by_the_log(brokers: Brokers, timed_out: bool):
    """As ever."""
    brokers.cluster.transaction_version = 1
    written = brokers.decided()
    if timed_out:
        time_out(brokers)
    assert settle(brokers.ports(), [written]) == {written.pair: LOST if timed_out else COMMITTED}
    assert brokers.visible() == (0 if timed_out else 1)


@pytest.mark.parametrize("version", [1, 2])
@on_brokers
def test_each_is_ended_by_its_own_version(brokers: Brokers, version: int):
    """Whatever the cluster's transaction.version is by then: the epoch rises with the one, and not with the other."""
    brokers.cluster.transaction_version = version
    written = brokers.decided()
    assert written.endtxn_version == (FENCING_END if brokers.cluster.transaction_version == 2 else PLAIN_END)
    brokers.cluster.transaction_version = 3 - brokers.cluster.transaction_version
    assert settle(brokers.ports(), [written]) == {written.pair: COMMITTED}
    now = brokers.ports().coordinator.describe([written.pair.id])[written.pair.id].pair
    assert now.epoch == written.pair.epoch + written.end_fences


@pytest.mark.parametrize(("timed_out", "raised_to"), [(False, 1), (True, 1), (True, 2)])
@on_brokers
def test_a_ledger_that_was_lost_is_missed_by_what_was_opened_once_more(
    brokers: Brokers, timed_out: bool, raised_to: int
):
    """The coordinator knows nothing of the commit any more, only of the transaction without rows that came after it,
    and of its abort, whatever the version has become since; and who took the ledger ahead has ended what its own id
    tells."""
    brokers.cluster.transaction_version = 1
    (written,) = (batch := brokers.prepared(brokers.open("r1"))).written
    commit(brokers.ports(), batch)
    open_once_more(brokers, written.pair)
    if timed_out:
        time_out(brokers)
    brokers.take_the_ledger()
    brokers.cluster.logs[LEDGER] = PartitionLog()
    brokers.cluster.transaction_version = raised_to
    stopped("EOS_LEDGER_HEAD_LOST", lambda: brokers.open("r2"))
    assert brokers.open("r3", begin_at=0).generation == 2


@on_brokers
def test_an_operator_leaves_the_trace_of_a_lost_ledger(brokers: Brokers):
    """To take the ledger would make the coordinator forget that its last transaction was committed."""
    commit(brokers.ports(), brokers.prepared(brokers.open("r1")))
    brokers.cluster.logs[LEDGER] = PartitionLog()
    stopped("EOS_QUERY_UNKNOWN", lambda: abort_undecided(brokers.ports(), QUERY))
    assert brokers.state(Pair(ledger_name(PREFIX, QUERY), 0, 0)) is State.COMPLETE_COMMIT


@pytest.mark.parametrize("version", [0, 1, 2])
@on_brokers
def test_what_an_earlier_run_has_left_cannot_begin_anew(brokers: Brokers, version: int):
    """Its requests are refused from then on; the decided one that waits for its verdict is left alone."""
    brokers.cluster.transaction_version = version
    head = brokers.open("r1")
    left = brokers.attempt(task_name(PREFIX, QUERY, TaskId(head.generation, 1, 0)))
    batch = brokers.prepared(head)
    (pair,) = batch.pairs
    brokers.dies("commit.decided", batch)
    brokers.open("r2")
    assert brokers.state(pair) is State.COMPLETE_COMMIT
    assert brokers.cluster.add(left.id, left.producer_id, left.epoch, OUTPUT).code == FENCED
    late = brokers.cluster.produce(left.id, left.producer_id, left.epoch, OUTPUT, 1, (0, 1))
    assert late.code in (FENCED, ABORTABLE)
    assert brokers.visible() == 1
