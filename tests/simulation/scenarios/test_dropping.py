"""The steps of `spark-eos recover --drop-planned` in the ledger, on the simulated cluster, killed between any two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_eos.errors import ReplayError
from spark_eos.protocol import commands
from spark_eos.protocol.commands import begin, check_still, intend, known_head, overtaken, resume
from spark_eos.protocol.commit import commit
from spark_eos.protocol.head import NOBODY, Head, Marks, Unfinished
from spark_eos.protocol.ports import NotPublished, Ports, State
from tests.simulation.by_hand import Brokers, on_brokers, stopped, when_publishing
from tests.simulation.ledger import PREFIX, QUERY
from tests.support.models.dying_driver import Killed, kill

FIRST, SECOND = (Unfinished(QUERY, "/c", "/c", batch - 1, ()) for batch in (0, 1))


def halt(own: Ports, unfinished: Unfinished) -> Head:
    """By a command that has judged the head that is there now."""
    return commands.halt(own, unfinished, known_head(own.ledger.read(), QUERY))[0]


@on_brokers
def test_a_micro_batch_that_is_not_decided_is_dropped(brokers: Brokers):
    """What it has open is aborted, no start gets past the mark, and then it is decided as it is planned anew."""
    commit(brokers.ports(), brokers.prepared(brokers.open("r1"), 0))
    batch, own = brokers.prepared(brokers.open("r2", 1), 1), brokers.ports()
    before = own.ledger.read()
    halted = halt(own, SECOND)
    (pair,) = batch.pairs
    assert brokers.state(pair) is State.COMPLETE_ABORT
    error = stopped("EOS_DROP_UNFINISHED", lambda: brokers.open("r3", 1))
    assert "spark-eos --bootstrap-servers … recover /c --drop-planned --yes" in error.hint
    assert "micro-batch 1" in error.message
    assert not error.restart_helps
    head = resume(own, SECOND, halted)
    assert (head.run, head.marks, head.decision) == (NOBODY, Marks(), before.decision)
    stopped("EOS_CLOSED_BY_OPERATOR", lambda: commit(own, batch))
    commit(own, brokers.prepared(brokers.open("r4", 1), 1))
    assert own.ledger.read().decision.batch == 1


@on_brokers
def test_a_decision_that_comes_first_is_kept(brokers: Brokers):
    """A run that decides in the last moment: the command has to take the ledger, and then reads that."""
    batch = brokers.prepared(brokers.open("r1"))
    refused = []

    def drops() -> None:
        refused.append(stopped("EOS_DROP_REFUSED", lambda: halt(brokers.ports(), FIRST)))

    commit(brokers.ports("commit.decided", drops), batch)
    (error,) = refused
    assert isinstance(error, ReplayError)
    assert "Start the query" in error.hint
    (pair,) = batch.pairs
    assert brokers.state(pair) is State.COMPLETE_COMMIT
    assert brokers.ports().ledger.read().run == "r1"


@on_brokers
def test_what_was_decided_last_waits_for_the_next_start(brokers: Brokers):
    """A micro-batch before, whose commit was interrupted: its transaction is left alone, and the head keeps it."""
    batch = brokers.prepared(brokers.open("r1"))
    brokers.dies("commit.decided", batch)
    (pair,) = batch.pairs
    halted = halt(brokers.ports(), SECOND)
    assert brokers.state(pair) is State.ONGOING
    head = resume(brokers.ports(), SECOND, halted)
    assert head.decision.pairs == {pair}
    brokers.open("r2", 1)
    assert brokers.state(pair) is State.COMPLETE_COMMIT


@on_brokers
def test_whoever_has_published_the_mark_before_can_go_on_no_more(brokers: Brokers):
    """Nor can it when the query goes on."""
    brokers.open("r1")
    before = halt(brokers.ports(), FIRST)
    halted = halt(brokers.ports(), FIRST)
    stopped("EOS_COMMAND_OVERTAKEN", lambda: resume(brokers.ports(), FIRST, before))
    with pytest.raises(Killed):
        resume(brokers.ports("drop.resumed", kill), FIRST, halted)
    head = brokers.ports().ledger.read()
    stopped("EOS_COMMAND_OVERTAKEN", lambda: resume(brokers.ports(), FIRST, halted))
    assert brokers.ports().ledger.read() == head
    assert head.marks == Marks()


@on_brokers
def test_two_commands_do_not_mix(brokers: Brokers):
    """Another micro-batch, another location: the error names what has to be finished first."""
    own = brokers.ports()
    brokers.open("r1")
    halt(own, FIRST)
    elsewhere = replace(FIRST, checkpoint="/d", to="/d")
    for mark in (elsewhere, SECOND):
        error = stopped("EOS_REPLAY_NOT_FINISHED", lambda mark=mark: halt(own, mark))
        assert "recover /c --drop-planned" in error.hint


@on_brokers
def test_what_has_changed_since_it_was_judged(brokers: Brokers):
    """A run that has begun by then, and files that are others: nothing is published. After an answer that got lost,
    the mark is published once more."""
    own, judged = brokers.ports(), brokers.open("r1")
    brokers.open("r2")
    before = brokers.heads
    stopped("EOS_COMMAND_OVERTAKEN", lambda: commands.halt(own, FIRST, judged))

    def changed() -> None:
        raise overtaken("it has changed")

    judged = own.ledger.read()
    stopped("EOS_COMMAND_OVERTAKEN", lambda: commands.halt(own, FIRST, judged, changed))
    assert brokers.heads == before
    answers = ["lost"]

    def unanswered() -> None:
        if answers:
            raise NotPublished(answers.pop())

    when_publishing(own, unanswered, answered=True)
    assert halt(own, FIRST) == own.ledger.read()
    assert len(brokers.heads) == len(before) + 2


@pytest.mark.parametrize(
    ("does", "is_new"),
    [
        (lambda own, judged: commands.halt(own, FIRST, judged)[0], False),
        (lambda own, judged: intend(own, FIRST, judged), True),
    ],
    ids=["drop", "new_checkpoint"],
)
@on_brokers
def test_two_commands_at_once_that_do_the_same(
    brokers: Brokers, does: Callable[[Ports, Head], Head], is_new: bool
) -> None:
    """The second one is fenced as it publishes, and finds what it was about to publish: that is no answer of its own
    that got lost. Only one of the two goes on, as they would move files into the same folder."""
    judged = Head("r", 3, (), 5, prefix=PREFIX) if is_new else brokers.open("r1")
    own, first = brokers.ports(), list[Head]()
    when_publishing(own, lambda: first or first.append(does(brokers.ports(), judged)))
    second = does(own, judged)
    check_still(own, QUERY, second)
    stopped("EOS_COMMAND_OVERTAKEN", lambda: check_still(own, QUERY, first[0]))
    stopped("EOS_COMMAND_OVERTAKEN", lambda: begin(own, FIRST, None, first[0]))
    begin(own, FIRST, None, second)
