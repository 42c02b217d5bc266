"""What became of decided transactions, where an end does not fence: step by step, on the simulated cluster."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from spark_eos.errors import Unclear
from spark_eos.kafka.transactions import FENCING_END, PLAIN_END
from spark_eos.protocol.abort import abort_all
from spark_eos.protocol.commands import abort_undecided
from spark_eos.protocol.commit import commit
from spark_eos.protocol.end import _described_end, _verdict, settle
from spark_eos.protocol.head import Pair, Probe, Verdict, Written
from spark_eos.protocol.names import TaskId, ledger_name, task_name
from spark_eos.protocol.ports import Description, EndTxnAnswer, State, Visibility
from tests.simulation.by_hand import OUTPUT, TIMEOUT_MS, Brokers, on_brokers, stopped
from tests.simulation.codes import ABORTABLE, FENCED, OK
from tests.simulation.ledger import LEDGER, PREFIX, QUERY
from tests.simulation.partition_log import PartitionLog
from tests.simulation.scenarios.test_whole import aborted_by_hand, decided, taken_by_retention, visible
from tests.support.models.dying_driver import Killed, kill

PAIR = Pair("id", 17, 3)
NEXT = replace(PAIR, epoch=4)
PLAIN = Written(0, PAIR, 1, 1, Probe("t", 0, 0), endtxn_version=PLAIN_END)
FENCING = replace(PLAIN, endtxn_version=FENCING_END)
COMMITS, COMMITTED, LOST = (State.PREPARE_COMMIT, State.COMPLETE_COMMIT), Verdict.COMMITTED, Verdict.LOST


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(
    "described", [PAIR, NEXT, replace(PAIR, epoch=5), replace(PAIR, producer_id=18), replace(NEXT, producer_id=18)]
)
def test_what_a_description_is_evidence_of(described: Pair, state: State):
    """Where an end fences, commit or abort one epoch on. Where it does not, a commit of the very pair, and no abort.
    Of a later transaction of the id, or of a new producer id, it is evidence of nothing."""
    description = Description(described, state, 0, 1000)
    assert _described_end(PLAIN, description) is (COMMITTED if described == PAIR and state in COMMITS else None)
    fenced = LOST if state is State.COMPLETE_ABORT else COMMITTED if state in COMMITS else None
    assert _described_end(FENCING, description) is (fenced if described == NEXT else None)


@pytest.mark.parametrize(
    ("answer", "described", "found", "outcome"),
    [
        (EndTxnAnswer.DONE, None, None, COMMITTED),
        (EndTxnAnswer.DONE, State.COMPLETE_ABORT, Visibility.ABORTED, COMMITTED),
        (EndTxnAnswer.PENDING, State.PREPARE_COMMIT, None, COMMITTED),
        (EndTxnAnswer.INCONCLUSIVE, State.COMPLETE_COMMIT, Visibility.EXPIRED, COMMITTED),
        (EndTxnAnswer.INCONCLUSIVE, State.COMPLETE_ABORT, Visibility.VISIBLE, LOST),
        (EndTxnAnswer.INCONCLUSIVE, State.EMPTY, Visibility.VISIBLE, COMMITTED),
        (EndTxnAnswer.INCONCLUSIVE, None, Visibility.ABORTED, LOST),
        (EndTxnAnswer.INCONCLUSIVE, None, None, None),
        (EndTxnAnswer.PENDING, State.EMPTY, Visibility.ABORTED, None),
        (EndTxnAnswer.PENDING, None, Visibility.VISIBLE, None),
    ],
)
def test_the_outcome_of_a_transaction(
    answer: EndTxnAnswer, described: State | None, found: Visibility | None, outcome: Verdict | None
):
    """Row by row of the table in the docstring of `settle`: EndTxn before the coordinator, that before the log."""
    ports = SimpleNamespace(data=SimpleNamespace(look=lambda pair, probe: found))
    description = None if described is None else Description(NEXT, described, 0, 1000)
    assert _verdict(ports, FENCING, answer, description) is outcome


@pytest.mark.parametrize(
    ("elsewhere", "outcome"),
    [(None, None), (Visibility.ABORTED, LOST), (Visibility.EXPIRED, LOST), (Visibility.VISIBLE, COMMITTED)],
)
def test_a_transaction_that_was_aborted_by_hand_in_the_partition_of_its_first_record(
    elsewhere: Visibility | None, outcome: Verdict | None
):
    """While it is open in another one, it is not lost: it may still be committed there."""
    other = Probe("t", 1, 5)
    written = replace(FENCING, begins=(FENCING.probe, other))
    ports = SimpleNamespace(
        data=SimpleNamespace(look=lambda pair, probe: elsewhere if probe == other else Visibility.ABORTED)
    )
    assert _verdict(ports, written, EndTxnAnswer.INCONCLUSIVE, None) is outcome


def test_a_transaction_that_is_committed_between_two_looks():
    """What was open in another partition at the one look is judged by that: at the next, it is committed."""
    other = Probe("t", 1, 5)
    written = replace(FENCING, begins=(FENCING.probe, other))
    looks = iter([Visibility.ABORTED, None, Visibility.VISIBLE])
    ports = SimpleNamespace(data=SimpleNamespace(look=lambda pair, probe: next(looks)))
    assert _verdict(ports, written, EndTxnAnswer.INCONCLUSIVE, None) is None


def test_an_outcome_that_nobody_can_tell_any_more():
    """The log does not have the place, and nobody else tells."""
    ports = SimpleNamespace(data=SimpleNamespace(look=lambda pair, probe: Visibility.EXPIRED))
    with pytest.raises(Unclear) as caught:
        _verdict(ports, FENCING, EndTxnAnswer.INCONCLUSIVE, None)
    assert caught.value.condition == "EOS_OUTCOME_GONE"


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
    written = decided(brokers, ended=True)
    open_once_more(brokers, written.pair)
    time_out(brokers)
    description = brokers.ports().coordinator.describe([written.pair.id])[written.pair.id]
    assert (description.state, description.pair.epoch) == (State.COMPLETE_ABORT, written.pair.epoch + 1)
    assert settle(brokers.ports(), [written]) == {written.pair: COMMITTED}
    assert visible(brokers) == 1


@on_brokers
def test_what_is_open_once_more_has_not_lost_its_rows(brokers: Brokers):
    """It is described as open, and its partition's leader has nothing of it; so the log is asked first."""
    brokers.cluster.transaction_version = 1
    written = decided(brokers, ended=True)
    open_once_more(brokers, written.pair)
    assert settle(brokers.ports(), [written]) == {written.pair: COMMITTED}
    assert brokers.open("r2").decision.judged({}).written[0].verdict is COMMITTED


@pytest.mark.parametrize("ended", [True, False])
@on_brokers
def test_what_is_open_once_more_after_retention_cannot_be_told(brokers: Brokers, ended):
    """Whether it was committed, or aborted in this one partition, stood where its records were."""
    brokers.cluster.transaction_version = 1
    written = decided(brokers, ended=ended)
    if ended:
        open_once_more(brokers, written.pair)
    else:
        aborted_by_hand(brokers, written.pair)
    taken_by_retention(brokers, written.pair)
    error = stopped("EOS_OUTCOME_GONE", lambda: settle(brokers.ports(), [written]))
    assert isinstance(error, Unclear)
    assert brokers.state(written.pair) is State.ONGOING


@on_brokers
def test_what_retention_has_taken_while_it_was_open_is_broken(brokers: Brokers):
    """Its leader still has it open from there on: no end has come, neither before nor since."""
    brokers.cluster.transaction_version = 1
    written = decided(brokers, ended=False)
    taken_by_retention(brokers, written.pair)
    stopped("EOS_DECISION_BROKEN", lambda: settle(brokers.ports(), [written]))


@pytest.mark.parametrize("raised_to", [1, 2])
@on_brokers
def test_a_lost_ledger_is_noticed_by_what_tasks_have_aborted(brokers: Brokers, raised_to: int):
    """The abort may have come after the commit, whatever the version has become since; and who took the ledger ahead
    has ended what its own id tells."""
    brokers.cluster.transaction_version = 1
    (written,) = (batch := brokers.prepared(brokers.open("r1"))).written
    commit(brokers.ports(), batch)
    open_once_more(brokers, written.pair)
    time_out(brokers)
    brokers.take_the_ledger()
    brokers.cluster.logs[LEDGER] = PartitionLog()
    brokers.cluster.transaction_version = raised_to
    stopped("EOS_LEDGER_HEAD_LOST", lambda: brokers.open("r2"))


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
    written = decided(brokers, ended=False)
    if timed_out:
        time_out(brokers)
    assert settle(brokers.ports(), [written]) == {written.pair: LOST if timed_out else COMMITTED}
    assert visible(brokers) == (0 if timed_out else 1)


@pytest.mark.parametrize("version", [1, 2])
@on_brokers
def test_each_is_ended_by_its_own_version(brokers: Brokers, version: int):
    """Whatever the cluster's transaction.version is by then: the epoch rises with the one, and not with the other."""
    brokers.cluster.transaction_version = version
    written = decided(brokers, ended=False)
    assert written.endtxn_version == (FENCING_END if brokers.cluster.transaction_version == 2 else PLAIN_END)
    brokers.cluster.transaction_version = 3 - brokers.cluster.transaction_version
    assert settle(brokers.ports(), [written]) == {written.pair: COMMITTED}
    now = brokers.ports().coordinator.describe([written.pair.id])[written.pair.id].pair
    assert now.epoch == written.pair.epoch + written.end_fences


@pytest.mark.parametrize("timed_out", [False, True])
@on_brokers
def test_a_ledger_that_was_lost_is_missed_by_what_was_opened_once_more(brokers: Brokers, timed_out: bool):
    """The coordinator knows nothing of the commit any more, only of the transaction without rows that came after it."""
    brokers.cluster.transaction_version = 1
    (written,) = (batch := brokers.prepared(brokers.open("r1"))).written
    commit(brokers.ports(), batch)
    open_once_more(brokers, written.pair)
    if timed_out:
        time_out(brokers)
    brokers.take_the_ledger()
    brokers.cluster.logs[LEDGER] = PartitionLog()
    stopped("EOS_LEDGER_HEAD_LOST", lambda: brokers.open("r2"))
    assert brokers.open("r3", begin_at=0).generation == 2


@on_brokers
def test_an_operator_leaves_the_trace_of_a_lost_ledger(brokers: Brokers):
    """To take the ledger would make the coordinator forget that its last transaction was committed."""
    commit(brokers.ports(), brokers.prepared(brokers.open("r1")))
    brokers.cluster.logs[LEDGER] = PartitionLog()
    stopped("EOS_QUERY_UNKNOWN", lambda: abort_undecided(brokers.ports(), QUERY))
    assert brokers.state(Pair(ledger_name(PREFIX, QUERY), 0, 0)) is State.COMPLETE_COMMIT


def test_an_abort_is_by_the_version_of_now():
    """Of pairs of either kind; no answer to it is evidence of anything."""
    asked = []

    class Coordinator:
        def endtxn_version(self) -> int:
            return PLAIN_END

        def end(self, pairs, *, commit):
            asked.append((pairs, commit))
            return dict.fromkeys(pairs, EndTxnAnswer.DONE)

    class Ports:
        coordinator = Coordinator()

        def retrying(self):
            yield

    assert not abort_all(Ports(), {PAIR, NEXT})
    assert asked == [({PAIR: PLAIN_END, NEXT: PLAIN_END}, False)]


@pytest.mark.parametrize("version", [0, 1, 2])
@on_brokers
def test_what_an_earlier_run_has_left_cannot_begin_anew(brokers: Brokers, version: int):
    """Its requests are refused from then on; the decided one that waits for its verdict is left alone."""
    brokers.cluster.transaction_version = version
    head = brokers.open("r1")
    left = brokers.attempt(task_name(PREFIX, QUERY, TaskId(head.generation, 1, 0)))
    batch = brokers.prepared(head)
    (pair,) = batch.pairs
    with pytest.raises(Killed):
        commit(brokers.ports("commit.decided", kill), batch)
    brokers.open("r2")
    assert brokers.state(pair) is State.COMPLETE_COMMIT
    assert brokers.cluster.add(left.id, left.producer_id, left.epoch, OUTPUT).code == FENCED
    late = brokers.cluster.produce(left.id, left.producer_id, left.epoch, OUTPUT, 1, (0, 1))
    assert late.code in (FENCED, ABORTABLE)
    assert visible(brokers) == 1
