"""What an operator does to a query from outside: on the simulated cluster, step by step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_eos.errors import CommandError, Superseded, Unclear
from spark_eos.kafka.transactions import NEVER_MS
from spark_eos.protocol.commands import (
    abort_undecided,
    closes,
    halt,
    hand_over,
    known_head,
    recover,
    retire,
    settle_decided,
    settled_state,
)
from spark_eos.protocol.commit import commit
from spark_eos.protocol.head import NOBODY, Head, Successor, Unfinished, Verdict, is_waiting
from spark_eos.protocol.names import ledger_name
from spark_eos.protocol.ports import Ports, State
from tests.simulation.by_hand import Brokers, on_brokers, stopped, when_publishing
from tests.simulation.client import Producer
from tests.simulation.ledger import LEDGER, PREFIX, QUERY
from tests.support.models.dying_driver import Killed, kill

HEIR = Successor("another", "/new")
FIRST = Unfinished(QUERY, "/c", "/c", -1, ())


@on_brokers
def test_what_is_decided_is_committed_by_an_operator(brokers: Brokers):
    """And the run is not disturbed: whoever carries out a decision, it is the same. What an attempt that came late
    begins after that under its id can be aborted: nothing else would end it."""
    name = brokers.decided().pair.id
    own = brokers.ports()
    assert is_waiting(own.ledger.read().decision, name)
    ended = settle_decided(own, QUERY)
    assert [(pair.id, verdict) for pair, verdict in ended.verdicts] == [(name, Verdict.COMMITTED)]
    assert own.ledger.read().run == "r1" and not is_waiting(own.ledger.read().decision, name)
    assert settle_decided(own, QUERY).verdicts == ended.verdicts
    (late,) = brokers.prepared(own.ledger.read()).pairs
    assert late.id == name and brokers.state(late) is State.ONGOING
    assert abort_undecided(own, QUERY).left == frozenset()
    assert brokers.state(late) is State.COMPLETE_ABORT


def drops(own: Ports) -> object:
    head = known_head(own.ledger.read(), QUERY)
    return halt(own, FIRST, head)


@pytest.mark.parametrize(
    ("does", "published", "condition"),
    [
        (lambda own: abort_undecided(own, QUERY), "recover.closed", "EOS_CLOSED_BY_OPERATOR"),
        (lambda own: retire(own, QUERY, HEIR), "replay.halted", "EOS_QUERY_RETIRED"),
        (lambda own: hand_over(own, HEIR, settled_state(own).decision, PREFIX), "mirror.retired", "EOS_QUERY_RETIRED"),
        (drops, "drop.halted", "EOS_DROP_UNFINISHED"),
    ],
    ids=["close", "retire", "hand over", "drop"],
)
@on_brokers
def test_a_run_that_is_alive_decides_nothing_after_a_command(
    brokers: Brokers, does: Callable[[Ports], object], published: str, condition: str
):
    """Though that was killed when it had published its head. Repeated, it aborts what is left."""
    batch = brokers.prepared(brokers.open("r1"))
    (pair,) = batch.pairs
    with pytest.raises(Killed):
        does(brokers.ports(published, kill))
    assert brokers.state(pair) is State.ONGOING
    does(brokers.ports())
    assert brokers.state(pair) is State.COMPLETE_ABORT
    error = stopped(condition, lambda: commit(brokers.ports(), batch))
    assert isinstance(error, Superseded) and not error.restart_helps


@on_brokers
def test_a_query_that_was_closed_goes_on_when_it_is_started(brokers: Brokers):
    """And its head belongs to that run."""
    brokers.open("r1")
    abort_undecided(brokers.ports(), QUERY)
    assert commit(brokers.ports(), brokers.prepared(brokers.open("r2"))).transactions == 1
    assert not brokers.ports().ledger.read().closed_by_operator


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


@pytest.mark.parametrize(
    "does",
    [
        lambda own: abort_undecided(own, QUERY),
        lambda own: settle_decided(own, QUERY),
        lambda own: retire(own, QUERY, HEIR),
        lambda own: halt(own, FIRST, Head("r1", 1, (), 5)),
    ],
    ids=["close", "settle", "retire", "drop"],
)
@on_brokers
def test_a_query_that_the_ledger_does_not_know(brokers: Brokers, does: Callable[[Ports], object]):
    """Nobody can tell what of it is decided, so nothing is ended; and what the coordinators know of a lost ledger
    stays."""
    error = stopped("EOS_QUERY_UNKNOWN", lambda: does(brokers.ports()))
    assert isinstance(error, CommandError) and QUERY in error.message
    assert not list(brokers.ports().coordinator.known())


@on_brokers
def test_a_ledger_that_is_taken_away_each_time(brokers: Brokers):
    """Nothing is aborted by whoever could not close the query."""
    (pair,) = brokers.prepared(brokers.open("r1")).pairs
    own = brokers.ports()
    when_publishing(own, brokers.take_the_ledger)
    assert isinstance(stopped("EOS_LEDGER_BUSY", lambda: abort_undecided(own, QUERY)), Unclear)
    assert brokers.state(pair) is State.ONGOING
