"""A ledger that has lost its newest records, as by an unclean election: what a start in a new process notices."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from spark_eos.protocol.batch import abort, commit
from spark_eos.protocol.head import PLAIN_END
from spark_eos.protocol.ports import Generations
from tests.simulation.client import Producer
from tests.simulation.ledger import LEDGER, SimulatedCoordinator
from tests.simulation.partition_log import PartitionLog
from tests.unit.protocol.test_stops import TIMEOUT_MS, Brokers, on_brokers, stopped

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
def test_a_loss_that_the_coordinators_give_away(lose: Callable[[Brokers], None]):
    """At this start and at the next one; nothing is published or aborted."""

    def steps(brokers: Brokers) -> None:
        lose(brokers)
        heads = brokers.heads
        for run in ("r8", "r9"):
            error = stopped(CONDITION, lambda run=run: brokers.open(run, 1))
            assert not error.restart_helps
        assert brokers.heads == heads

    on_brokers(steps)


def test_a_decision_of_the_same_run_leaves_no_trace():
    """The one that is left was its own, too, and what it had committed before looks the same: see docs/design.md."""

    def steps(brokers: Brokers) -> None:
        decide(brokers, "r1", 0, 1)
        cut(brokers, 1)
        assert brokers.open("r2", 1).generation == 2

    on_brokers(steps)


def test_nothing_is_missed_where_nothing_was_lost():
    """Whatever run has decided, and after a ledger that was begun anew in the place of a lost one."""

    def steps(brokers: Brokers) -> None:
        decide(brokers, "r1", 0, 1)
        decide(brokers, "r2", 2)
        decide(brokers, "r3", 3)
        brokers.cluster.logs[LEDGER] = PartitionLog()
        assert brokers.open("r4", 4, begin_at=4).generation == 4
        decide(brokers, "r5", 4)
        assert brokers.open("r6", 5).generation == 6

    on_brokers(steps)


def test_a_run_that_opens_meanwhile_is_no_loss(monkeypatch: pytest.MonkeyPatch):
    """Its tasks are known before its head was read; then that is read, and gone on from."""

    def steps(brokers: Brokers) -> None:
        decide(brokers, "r1", 0)
        asked = SimulatedCoordinator.generations

        def meanwhile(self: SimulatedCoordinator, decided: Collection[str] = (), *, since: int = 0) -> Generations:
            monkeypatch.setattr(SimulatedCoordinator, "generations", asked)
            brokers.prepared(brokers.open("other", 1), 1)
            return asked(self, decided, since=since)

        monkeypatch.setattr(SimulatedCoordinator, "generations", meanwhile)
        assert brokers.open("r2", 1).generation == 3

    on_brokers(steps)


def test_who_has_decided_remembers_it_whatever_the_ledger_says():
    """Its run is closed after the loss, and others have written more than was lost, so that the end tells nothing: the
    head that closes it has the decision."""

    def steps(brokers: Brokers) -> None:
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

    on_brokers(steps)
