"""The steps of `spark-eos replay` in the ledger, on the simulated cluster, one by one and killed between any two."""

from __future__ import annotations

from dataclasses import replace

from spark_eos.protocol.checks import check_halts, finish_command
from spark_eos.protocol.commands import Ended, abort_undecided, begin, intend, retire
from spark_eos.protocol.commit import commit
from spark_eos.protocol.head import (
    NOBODY,
    WHOLE,
    ForeachBatchWrite,
    Head,
    Marks,
    Successor,
    Unfinished,
    Verdict,
)
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.protocol.ports import State
from tests.simulation.by_hand import Brokers, on_brokers, stopped
from tests.simulation.ledger import PREFIX, QUERY

OFFSETS = {"in": {"0": 4}}
UNFINISHED = Unfinished(QUERY, "/old", "/new", 0, ('{"in":{"0":4}}',), ("v1", "{}"), ("v1", "{}"))
HEIR = Successor("another", "/new")


# Retired


@on_brokers
def test_what_is_decided_is_committed_and_what_is_not_is_aborted(brokers: Brokers):
    """Nobody else would do either, as the query never starts again."""
    pair = brokers.decided().pair
    left = brokers.prepared(replace(brokers.ports().ledger.read(), run="r1"), batch=1)
    own = brokers.ports()
    head = retire(own, QUERY, HEIR).head
    assert (head.run, head.marks.successor) == (NOBODY, HEIR)
    assert {w.verdict for w in head.decision.written} == {Verdict.COMMITTED}
    assert brokers.state(pair) is State.COMPLETE_COMMIT
    assert brokers.state(next(iter(left.pairs))) is State.COMPLETE_ABORT
    assert own.ledger.read() == head


@on_brokers
def test_what_stays_open_of_a_retired_query_is_told(brokers: Brokers):
    """No start of it will ever end it; an operator does."""
    batch = brokers.prepared(brokers.open("r1"))
    left = retire(brokers.ports("replay.halted", brokers.end_transactions_no_more), QUERY, HEIR).left
    assert {pair.id for pair in left} == {pair.id for pair in batch.pairs}
    del brokers.cluster.end
    head = abort_undecided(brokers.ports(), QUERY).head
    assert head.marks.successor == HEIR
    assert {brokers.state(pair) for pair in batch.pairs} == {State.COMPLETE_ABORT}


@on_brokers
def test_a_query_that_is_retired_once_more(brokers: Brokers):
    """Nothing is published; for another successor it is refused."""
    brokers.open("r1")
    own = brokers.ports()
    ended = retire(own, QUERY, HEIR)
    assert retire(own, QUERY, HEIR) == ended == Ended(own.ledger.read())
    stopped("EOS_REPLAY_REFUSED", lambda: retire(own, QUERY, Successor("a third", "/third")))


@on_brokers
def test_lost_rows_are_repaired_first(brokers: Brokers):
    """Only the query's own replay of that micro-batch writes them."""
    pair = brokers.decided().pair
    brokers.end(pair, commit=False)
    before = brokers.ports().ledger.read()
    error = stopped("EOS_REPLAY_ROWS_LOST", lambda: retire(brokers.ports(), QUERY, HEIR))
    assert "availableNow" in error.hint
    assert brokers.ports().ledger.read() == before


@on_brokers
def test_the_mark_for_sinks_that_have_no_head_yet(brokers: Brokers):
    """Within foreachBatch, a sink may begin in mid-life: before its first decision, it looks at this one. A query that
    the ledger does not know is not retired else."""
    own, whole = brokers.ports(), ForeachBatchWrite(QUERY, WHOLE)
    stopped("EOS_QUERY_UNKNOWN", lambda: retire(own, QUERY, HEIR))
    head = retire(own, QUERY, HEIR, absent=Head(NOBODY, 1, (), 5, prefix=PREFIX, write=whole)).head
    assert (head.write, head.marks) == (whole, Marks(successor=HEIR))
    assert retire(own, QUERY, HEIR).head == own.ledger.read() == head
    stopped("EOS_QUERY_RETIRED", lambda: check_halts(head, None))


# The new query


@on_brokers
def test_a_new_query_begins_where_the_replay_says(brokers: Brokers):
    """Until it is finished, no start gets past its head; then the first one goes on after micro-batch 0."""
    old = Head("r", 3, (), 5, prefix=PREFIX, partitioner="fnv1a")
    own = brokers.ports()
    head = intend(own, UNFINISHED, old)
    assert (head.prefix, head.partitioner, head.decision) == (PREFIX, "fnv1a", None)
    again = intend(own, UNFINISHED, old)
    assert again == head.succeeded_by(NOBODY, head.endtxn_version)
    for batch in (0, 1):
        error = stopped("EOS_REPLAY_UNFINISHED", lambda batch=batch: brokers.open("r1", batch))
        assert "replay /old --new /new --yes" in error.hint
    stopped("EOS_COMMAND_OVERTAKEN", lambda: begin(own, UNFINISHED, OFFSETS, head))
    begun = begin(own, UNFINISHED, OFFSETS, again)
    stopped("EOS_COMMAND_OVERTAKEN", lambda: begin(own, UNFINISHED, OFFSETS, again))
    assert (begun.decision.batch, begun.decision.offsets, begun.decision.written) == (0, OFFSETS, ())
    first = brokers.open("r1", 1)
    assert (first.run, first.partitioner) == ("r1", "fnv1a")
    commit(own, brokers.prepared(first, 1))
    stopped("EOS_REPLAY_REFUSED", lambda: intend(own, UNFINISHED, old))


@on_brokers
def test_two_replays_to_one_place(brokers: Brokers):
    """The second one is told how to finish the first."""
    own, old = brokers.ports(), Head("r", 3, (), 5, prefix=PREFIX)
    intend(own, UNFINISHED, old)
    other = replace(UNFINISHED, lines=("other",))
    error = stopped("EOS_REPLAY_NOT_FINISHED", lambda: intend(own, other, old))
    assert finish_command(UNFINISHED) in error.hint


@on_brokers
def test_the_one_topic_of_a_replay(brokers: Brokers):
    """Its head stays for that topic, through all runs; a start that would write elsewhere is refused."""
    own, mark = brokers.ports(), replace(UNFINISHED, topic="copies")
    head = intend(own, mark, Head("r", 3, (), 5, prefix=PREFIX))
    assert begin(own, mark, OFFSETS, head).marks.topic == "copies"
    opened = open_run(own, NewRun("r1", 1, prefix=PREFIX, topic="copies"))
    assert opened.marks.topic == "copies"
    stopped("EOS_REPLAY_OTHER_TOPIC", lambda: open_run(own, NewRun("r2", 1, prefix=PREFIX, topic="another")))


@on_brokers
def test_writes_within_foreach_batch_begin_anywhere(brokers: Brokers):
    """Their head is only to say that the replay is finished; it keeps the name of the sink."""
    own, sink = brokers.ports(), ForeachBatchWrite("new", "gold")
    intended = intend(own, UNFINISHED, Head("r", 3, (), 5, prefix=PREFIX), sink)
    begun = begin(own, UNFINISHED, OFFSETS, intended)
    assert (begun.decision, begun.write) == (None, sink)
    head = open_run(own, NewRun("r1", 7, prefix=PREFIX, write=sink))
    assert (head.write, head.marks) == (sink, Marks())
