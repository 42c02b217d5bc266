"""What an operator does to a query from outside: on the simulated cluster, step by step."""

from __future__ import annotations

from functools import partial

import pytest

from spark_eos.errors import CommandError, Superseded, Unclear
from spark_eos.kafka.transactions import NEVER_MS
from spark_eos.protocol import commands
from spark_eos.protocol.commands import abort_undecided, closes, recover, retire, settle_decided
from spark_eos.protocol.commit import commit
from spark_eos.protocol.head import NOBODY, Successor, Verdict, is_waiting
from spark_eos.protocol.names import ledger_name
from spark_eos.protocol.ports import State
from tests.simulation.by_hand import Brokers, on_brokers, stopped
from tests.simulation.client import Producer
from tests.simulation.ledger import LEDGER, PREFIX, QUERY


@on_brokers
def test_what_is_decided_is_committed_by_an_operator(brokers: Brokers):
    """And the run is not disturbed: whoever carries out a decision, it is the same."""
    name = brokers.decided().pair.id
    own = brokers.ports()
    assert is_waiting(own.ledger.read().decision, name)
    ended = settle_decided(own, QUERY)
    assert [(pair.id, verdict) for pair, verdict in ended.verdicts] == [(name, Verdict.COMMITTED)]
    assert own.ledger.read().run == "r1"
    assert settle_decided(own, QUERY).verdicts == ended.verdicts


@on_brokers
def test_what_begins_under_an_id_of_a_settled_decision_can_be_aborted(brokers: Brokers):
    """An attempt that came late took the id when its transaction was committed: nothing else would end that one."""
    name = brokers.decided().pair.id
    own = brokers.ports()
    settle_decided(own, QUERY)
    assert not is_waiting(own.ledger.read().decision, name)
    late = brokers.prepared(own.ledger.read())
    assert [pair.id for pair in late.pairs] == [name]
    assert own.coordinator.describe([name])[name].state is State.ONGOING
    assert abort_undecided(own, QUERY).left == frozenset()
    assert own.coordinator.describe([name])[name].state is State.COMPLETE_ABORT


@on_brokers
def test_what_is_decided_is_not_aborted_by_an_operator(brokers: Brokers):
    """The query is closed, and what waits for its commit stays."""
    name = brokers.decided().pair.id
    own = brokers.ports()
    ended = abort_undecided(own, QUERY)
    assert (ended.head.run, ended.left) == (NOBODY, frozenset())
    assert own.coordinator.describe([name])[name].state is State.ONGOING


@on_brokers
def test_what_is_not_decided_is_aborted_and_cannot_be_decided_any_more(brokers: Brokers):
    """The run that is alive finds itself closed."""
    batch = brokers.prepared(brokers.open("r1"))
    (pair,) = batch.pairs
    own = brokers.ports()
    abort_undecided(own, QUERY)
    assert own.coordinator.describe([pair.id])[pair.id].state is State.COMPLETE_ABORT
    with pytest.raises(Superseded, match="EOS_CLOSED_BY_OPERATOR") as caught:
        commit(own, batch)
    assert not caught.value.restart_helps
    assert commit(own, brokers.prepared(brokers.open("r2"))).transactions == 1  # who starts it again goes on
    assert not own.ledger.read().closed_by_operator


@pytest.mark.parametrize("decides", [True, False])
@on_brokers
def test_a_run_is_closed_unless_it_has_decided_something_since_it_was_judged(brokers: Brokers, decides):
    """One that has is alive."""
    own, judged = brokers.ports(), brokers.open("r1")
    batch = brokers.prepared(judged)
    if decides:
        commit(brokers.ports(), batch)
        stopped("EOS_COMMAND_OVERTAKEN", lambda: abort_undecided(own, QUERY, closes(judged, decided=True)))
        assert own.ledger.read().run == "r1"
    else:
        assert abort_undecided(own, QUERY, closes(judged, decided=True)).head.run == NOBODY


@on_brokers
def test_who_recovers_closes_the_query_once(brokers: Brokers):
    """And notes what was committed; nothing has begun since that would have to be closed once more."""
    brokers.decided()
    before = len(brokers.heads)
    ended = recover(brokers.ports(), QUERY)
    assert (ended.head, ended.left) == (brokers.ports().ledger.read(), frozenset())
    assert len(brokers.heads) == before + 2


@on_brokers
def test_a_ledger_that_a_dead_driver_holds(brokers: Brokers):
    """Nobody can read it: whoever closes the query takes it first, which ends that."""
    brokers.open("r1")
    dead = Producer(brokers.world, brokers.cluster, ledger_name(PREFIX, QUERY), NEVER_MS)
    dead.init()
    dead.produce(LEDGER, (QUERY, b""))
    stopped("EOS_LEDGER_HELD", brokers.ports().ledger.read)
    assert abort_undecided(brokers.ports(), QUERY).head.run == NOBODY


@on_brokers
def test_a_query_that_the_ledger_does_not_know(brokers: Brokers):
    """Nobody can tell what of it is decided, so nothing is ended."""
    for act in (abort_undecided, settle_decided, partial(retire, successor=Successor("another", "/new"))):
        with pytest.raises(CommandError, match=QUERY) as caught:
            act(brokers.ports(), QUERY)
        assert caught.value.condition == "EOS_QUERY_UNKNOWN"


@on_brokers
def test_a_ledger_that_cannot_be_written(brokers: Brokers, monkeypatch):
    """Nothing is aborted by whoever could not close the query."""
    batch = brokers.prepared(brokers.open("r1"))
    (pair,) = batch.pairs
    own = brokers.ports()
    monkeypatch.setattr(commands, "close", lambda *_, **__: None)
    with pytest.raises(Unclear, match="EOS_LEDGER_BUSY"):
        abort_undecided(own, QUERY)
    assert own.coordinator.describe([pair.id])[pair.id].state is State.ONGOING
