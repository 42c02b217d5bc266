"""A query that another one takes over from, on the simulated cluster: at each step of its run, and killed between any
two steps of the taker's."""

from __future__ import annotations

import pytest

from spark_eos.protocol.commands import SettledState, halt, hand_over, settled_state
from spark_eos.protocol.commit import commit
from spark_eos.protocol.head import NOBODY, Successor, Unfinished, Verdict
from spark_eos.protocol.ports import State
from tests.simulation.by_hand import Brokers, on_brokers, stopped
from tests.simulation.ledger import PREFIX, QUERY
from tests.support.models.dying_driver import Killed, kill

HEIR = Successor("another", "/new")


def taken(brokers: Brokers, seen: SettledState | None = None) -> bool:
    own = brokers.ports()
    return hand_over(own, HEIR, (seen or settled_state(own)).decision, PREFIX)


@on_brokers
def test_what_is_decided_counts_before_anybody_looks_at_it(brokers: Brokers):
    """A run has died before it committed: who looks at how the query stands commits that first."""
    pair = brokers.decided().pair
    seen = settled_state(brokers.ports())
    assert {w.verdict for w in seen.decision.written} == {Verdict.COMMITTED}
    assert brokers.state(pair) is State.COMPLETE_COMMIT
    assert taken(brokers, seen)
    head = brokers.ports().ledger.read()
    assert (head.run, head.marks.successor, head.decision) == (NOBODY, HEIR, seen.decision)
    assert settled_state(brokers.ports()) == SettledState(seen.decision, retired=True, successor="another")


@pytest.mark.parametrize("first", [True, False])
@on_brokers
def test_a_decision_since_the_look_and_another_taker_first(brokers: Brokers, first):
    """The query is retired, but not where this taker has seen it: it looks again, as where it would begin, rows would
    be there twice. What the other one has died over is ended all the same."""
    head = brokers.open("r1")
    if not first:
        commit(brokers.ports(), brokers.prepared(head))
    seen, number = settled_state(brokers.ports()), 0 if first else 1
    commit(brokers.ports(), brokers.prepared(brokers.ports().ledger.read(), number))
    (left,) = brokers.prepared(brokers.ports().ledger.read(), number + 1).pairs
    other = brokers.ports("mirror.retired", kill)
    with pytest.raises(Killed):
        hand_over(other, Successor("a third", "/third"), settled_state(brokers.ports()).decision, PREFIX)
    before = brokers.heads
    assert not taken(brokers, seen)
    assert brokers.heads == before
    assert brokers.state(left) is State.COMPLETE_ABORT
    again = settled_state(brokers.ports())
    assert (again.retired, again.successor) == (True, "a third")
    assert taken(brokers, again)


@on_brokers
def test_a_query_that_has_no_head_yet(brokers: Brokers):
    """It has claimed topics, and its first task comes late: it never opens."""
    assert settled_state(brokers.ports()) == SettledState(None)
    assert taken(brokers)
    stopped("EOS_QUERY_RETIRED", lambda: brokers.open("r1"))
    assert taken(brokers)  # once more, which changes nothing


@on_brokers
def test_a_drop_that_is_not_finished(brokers: Brokers):
    """It says by name what has to be done first."""
    commit(brokers.ports(), brokers.prepared(brokers.open("r1")))
    halt(brokers.ports(), Unfinished(QUERY, "/old", "/old", 0, ()), brokers.ports().ledger.read())
    stopped("EOS_REPLAY_NOT_FINISHED", lambda: taken(brokers))
