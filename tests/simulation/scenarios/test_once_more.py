"""What became of decided transactions where an end does not fence, so that a late request opens them once more."""

from __future__ import annotations

import pytest

from spark_eos.errors import Unclear
from spark_eos.protocol.commit import commit
from spark_eos.protocol.end import find_held, settle
from spark_eos.protocol.head import Pair, Verdict
from spark_eos.protocol.ports import State
from tests.simulation.by_hand import OUTPUT, TIMEOUT_MS, Brokers, on_brokers, stopped
from tests.simulation.codes import OK
from tests.simulation.ledger import LEDGER
from tests.simulation.partition_log import PartitionLog

COMMITTED, LOST = Verdict.COMMITTED, Verdict.LOST


def open_once_more(brokers: Brokers, pair: Pair) -> None:
    """A request of the attempt that comes late; its rows come late, too, and are known."""
    pair_of = pair.id, pair.producer_id, pair.epoch
    assert brokers.cluster.add(*pair_of, OUTPUT).code == OK
    assert brokers.state(pair) is State.ONGOING
    brokers.cluster.produce(*pair_of, OUTPUT, 0, (0, 0))
    assert pair.producer_id not in brokers.cluster.log(OUTPUT).open


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


@on_brokers
def test_what_another_task_ends_while_it_is_looked_at_is_not_broken(brokers: Brokers):
    """It was open once more, without a row, when the coordinator was asked last."""
    brokers.cluster.transaction_version = 1
    written = brokers.decided("commit.ended")
    open_once_more(brokers, written.pair)
    ports, answers = brokers.ports(), []
    describe = ports.coordinator.describe

    def ended_after_the_second(ids):
        answers.append(describe(ids))
        if len(answers) == 2:
            brokers.end(written.pair, commit=True)
        return answers[-1]

    ports.coordinator.describe = ended_after_the_second
    assert find_held(ports, [written])[1] == []
    assert brokers.state(written.pair) is State.COMPLETE_COMMIT


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
        brokers.world.sleep(2 * TIMEOUT_MS)
    brokers.take_the_ledger()
    brokers.cluster.logs[LEDGER] = PartitionLog()
    brokers.cluster.transaction_version = raised_to
    stopped("EOS_LEDGER_HEAD_LOST", lambda: brokers.open("r2"))
    assert brokers.open("r3", begin_at=0).generation == 2
