"""A ledger that has lost its newest records, as by an unclean election: what a start in a new process notices."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_eos.kafka.transactions import FENCING_END, PLAIN_END
from spark_eos.protocol.abort import abort
from spark_eos.protocol.commands import abort_undecided, retire, settle_decided
from spark_eos.protocol.commit import commit, take_ahead
from spark_eos.protocol.head import Successor
from spark_eos.protocol.names import TaskId, task_name
from spark_eos.protocol.ports import State
from tests.simulation.by_hand import OUTPUT, TIMEOUT_MS, Brokers, meanwhile, on_brokers, stopped
from tests.simulation.client import Producer
from tests.simulation.coordinator import LAST_EPOCH, WEEK_MS
from tests.simulation.ledger import LEDGER, PREFIX
from tests.simulation.plan import QUERY

CONDITION = "EOS_LEDGER_TRUNCATED"
#: Records: the head itself, and its marker.
OF_A_HEAD = 2


def decide(brokers: Brokers, run: str, *batches: int) -> None:
    """A run opens, and decides these micro-batches."""
    for batch in batches:
        commit(brokers.ports(), brokers.prepared(brokers.open(run, batch), batch))


def cut(brokers: Brokers, heads: int) -> None:
    """So many of the newest heads are gone."""
    assert brokers.cluster.log(LEDGER).cut(OF_A_HEAD * heads)


def first_decision(brokers: Brokers) -> None:
    """The head that is left is the run's own, without a decision."""
    decide(brokers, "r1", 0)
    cut(brokers, 1)


def decision_of_a_later_run(brokers: Brokers) -> None:
    """The head that is left is the run's own, with the decision of the run before."""
    decide(brokers, "r1", 0)
    decide(brokers, "r2", 1)
    cut(brokers, 1)


def later_run(brokers: Brokers) -> None:
    """Nothing is decided by it; a task of it has begun to write."""
    decide(brokers, "r1", 0)
    brokers.prepared(brokers.open("r2", 1), 1)
    cut(brokers, 1)


@pytest.mark.parametrize("lose", [first_decision, decision_of_a_later_run, later_run])
@on_brokers
def test_a_loss_that_the_coordinators_give_away(brokers: Brokers, lose: Callable[[Brokers], None]):
    """At this start and at the next one; nothing is published or aborted."""
    lose(brokers)
    heads = brokers.heads
    for run in ("r8", "r9"):
        error = stopped(CONDITION, lambda run=run: brokers.open(run, 1))
        assert not error.restart_helps
    assert brokers.heads == heads


@on_brokers
def test_a_ledger_that_is_begun_anew_before_brokers_list_by_pattern(brokers: Brokers):
    """And they do at the next start, after an upgrade: what they tell then is of earlier generations."""
    decide(brokers, "r1", 0)
    decide(brokers, "r2", 1)
    brokers.cluster.lists_by_pattern = False
    cut(brokers, 4)
    assert brokers.open("r3", 2, begin_at=2).generation == 3
    brokers.cluster.lists_by_pattern = True
    assert brokers.open("r4", 2).generation == 4


@on_brokers
def test_a_driver_that_is_still_before_the_micro_batch_at_which_a_ledger_is_begun_anew(brokers: Brokers):
    """What it writes was decided in the ledger that is lost: the new one knows that much."""
    decide(brokers, "r1", 0, 1)
    cut(brokers, 3)
    brokers.open("r2", 2, begin_at=2)
    stopped("EOS_CHECKPOINT_BEHIND", lambda: brokers.open("r3", 0))
    assert brokers.open("r4", 1).decision is not None  # its rows are compared with those of none


@on_brokers
def test_a_ledger_that_is_begun_anew_loses_its_first_decision(brokers: Brokers):
    """The head that is left has a decision, but none that a run of its generation could have made before."""
    decide(brokers, "r1", 0)
    cut(brokers, 2)
    begun = brokers.open("r2", 1, begin_at=1)
    commit(brokers.ports(), brokers.prepared(begun, 1))
    assert take_ahead(brokers.ports(), "r2") is not None  # which ends what the ledger's own id tells
    cut(brokers, 1)
    stopped(CONDITION, lambda: brokers.open("r3", 1, begin_at=1))


@on_brokers
def test_a_ledger_that_is_begun_anew_while_a_task_of_a_lost_run_has_only_its_id(brokers: Brokers):
    """That run is counted, so that what its task writes later is not of a run that comes after the new ones."""
    decide(brokers, "r1", 0)
    brokers.open("r2", 1)
    later = brokers.open("r3", 1)
    name = task_name(PREFIX, QUERY, TaskId(later.generation, 0, 1))
    task = Producer(brokers.world, brokers.cluster, name, TIMEOUT_MS, FENCING_END)
    task.init()
    cut(brokers, 4)
    assert brokers.open("r4", 1, begin_at=1).generation == later.generation + 1
    task.produce(OUTPUT, (1, 0))
    assert brokers.open("r5", 1).generation == later.generation + 2


@on_brokers
def test_the_first_micro_batch_of_a_ledger_that_is_lost(brokers: Brokers):
    """It may be decided: nobody is told to begin there without a look at the output."""
    decide(brokers, "r1", 0)
    cut(brokers, 2)
    error = stopped("EOS_LEDGER_HEAD_LOST", lambda: brokers.open("r2", 0))
    assert "may be decided" in error.message
    assert "this start has planned" not in error.hint


@pytest.mark.parametrize("level", [0, 2])
@on_brokers
def test_a_decision_of_the_same_run_is_told_by_the_ledgers_own_id(brokers: Brokers, level: int):
    """The head that is left was its own, too, and what it had committed before looks the same; but under the ledger's
    id, something was committed later than that. So it is at each start, and for whoever else takes the ledger."""
    brokers.cluster.transaction_version = level
    decide(brokers, "r1", 0, 1)
    cut(brokers, 1)
    heads = brokers.heads
    for run in ("r8", "r9"):
        stopped(CONDITION, lambda run=run: brokers.open(run, 1))
        stopped(CONDITION, lambda: abort(brokers.ports(), "r1", 1))
        stopped(CONDITION, lambda: abort_undecided(brokers.ports(), QUERY))
        stopped(CONDITION, lambda: settle_decided(brokers.ports(), QUERY))
        stopped(CONDITION, lambda: retire(brokers.ports(), QUERY, Successor("other", "there")))
    assert brokers.heads == heads


@pytest.mark.parametrize("is_ahead", [False, True])
@on_brokers
def test_a_replaced_run_that_gets_the_ledger_back(brokers: Brokers, is_ahead: bool):
    """The run that has replaced it had decided the micro-batch; whether that one had taken the ledger again or not."""
    own = brokers.ports()
    head = brokers.open("r1", own=own)
    ahead = own.ledger.take()
    body = brokers.prepared(head)
    decide(brokers, "r2", 0)
    if is_ahead:
        assert take_ahead(brokers.ports(), "r2") is not None
    cut(brokers, 2)
    stopped(CONDITION, lambda: take_ahead(brokers.ports(), "r1"))
    stopped(CONDITION, lambda: commit(brokers.ports(), body, ahead))


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("epochs", range(5))
@on_brokers
def test_a_producer_id_whose_epochs_end(brokers: Brokers, level: int, epochs: int):
    """The ledger's id gets another producer id, by its end or when it is taken: no loss. One is noticed there, too."""
    brokers.cluster.transaction_version = level
    brokers.cluster.first_epoch = LAST_EPOCH - epochs
    for batch, run in enumerate(("r1", "r2", "r3")):
        decide(brokers, run, batch)
    brokers.open("r4", 3)
    decide(brokers, "r5", 3, 4)
    cut(brokers, 1)
    stopped(CONDITION, lambda: brokers.open("r6", 4))


@on_brokers
def test_another_producer_id_at_epoch_0_proves_nothing(brokers: Brokers):
    """It is the one after that of the head, by whose end the epochs were used up; or a later one, as here, where the
    coordinator had forgotten the id meanwhile, and the epochs of its next producer id were used up, too."""
    brokers.cluster.first_epoch = LAST_EPOCH
    head = brokers.open("r1")
    brokers.world.now += WEEK_MS + 1
    brokers.cluster.expire()
    commit(brokers.ports(), brokers.prepared(head))
    cut(brokers, 1)
    found = brokers.ports().coordinator.of_ledger()
    assert found is not None and (found.pair.epoch, found.state) == (0, State.COMPLETE_COMMIT)
    stopped(CONDITION, lambda: abort(brokers.ports(), "r1", 0))
    stopped(CONDITION, lambda: brokers.open("r2"))


@on_brokers
def test_a_run_that_opens_meanwhile_is_no_loss(brokers: Brokers):
    """Its tasks are known before its head was read; then that is read, and gone on from."""
    decide(brokers, "r1", 0)
    own, others = brokers.ports(), []
    meanwhile(
        own.coordinator,
        "generations",
        lambda: others or others.append(brokers.prepared(brokers.open("other", 1), 1)),
    )
    assert brokers.open("r2", 1, own=own).generation == 3


@on_brokers
def test_who_has_decided_remembers_it_whatever_the_ledger_says(brokers: Brokers):
    """Its run is closed after the loss, and others have written more than was lost, so that the end tells nothing: the
    head that closes it has the decision."""
    own = brokers.ports()
    commit(own, brokers.prepared(brokers.open("r1", own=own)))
    cut(brokers, 1)
    other = Producer(brokers.world, brokers.cluster, "another-ledger", TIMEOUT_MS, PLAIN_END)
    other.init()
    for _ in range(2 * OF_A_HEAD):
        other.produce(LEDGER, ("another", b""))
    other.end(commit=True)
    abort(own, "r1", 0)
    decision = brokers.open("r2").decision
    assert decision is not None
    assert decision.batch == 0


@on_brokers
def test_another_producer_id_of_the_ledger_is_of_something_later(brokers: Brokers):
    """The coordinator had forgotten the id of a query that stood for a week, and given it another producer id: what
    was committed with that came after the head. The tasks of the same run leave no such trace."""
    head = brokers.open("r1")
    commit(brokers.ports(), brokers.prepared(head))
    brokers.world.now += WEEK_MS + 1
    brokers.cluster.expire()
    commit(brokers.ports(), brokers.prepared(head, 1))
    cut(brokers, 1)
    heads = brokers.heads
    stopped(CONDITION, lambda: abort(brokers.ports(), "r1", 1))
    stopped(CONDITION, lambda: brokers.open("r2", 1))
    assert brokers.heads == heads
