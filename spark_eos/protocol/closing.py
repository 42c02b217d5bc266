"""Close a query's run, so that nothing more of it can be decided; and what an operator does with a query that does not
come back: abort what is not decided, or commit what is.

A query's transactions may be aborted only by whoever has closed it: what is undecided now may be decided in the next
moment by a run that is alive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from spark_eos.errors import EosError, LedgerError
from spark_eos.protocol.clearing import clear_earlier, undecided
from spark_eos.protocol.head import NOBODY, Decision, Head, Pair, Verdict
from spark_eos.protocol.looking_back import unseen_of
from spark_eos.protocol.newest import agrees, take, take_and_read
from spark_eos.protocol.ports import NotPublished, Ports
from spark_eos.protocol.stops import ledger_busy
from spark_eos.protocol.verdicts import abort_broken, settle


def close(
    ports: Ports,
    run: str | None = None,
    given_up: int | None = None,
    check: Callable[[Head], None] | None = None,
    *,
    by_operator: bool = False,
) -> Head | None:
    """Try once to take the ledger and publish a head that belongs to no run; returns it, or None when it was not
    published. With ``run``, only where the query's run is that one. ``given_up``: the micro-batch that the run has
    given up, if Spark may pass it all the same. ``check`` raises where this head is not to be closed.
    ``by_operator``: a command does it, after which the run does not start again by itself.

    From then on, no run before it can decide anything: each finds itself replaced. Raises as `take` does.
    """
    taken = take_and_read(ports)
    if taken is None:
        return None
    term, head = taken
    if head is None or (run is not None and head.run != run):
        return None
    if check is not None:
        check(head)
    closed = head.closed(by_operator=by_operator)
    if given_up is not None and head.unwritten is None:  # an earlier one is still missing
        closed = replace(closed, given_up=given_up)
    try:
        term.publish(closed)
    except NotPublished:
        return None
    return closed


@dataclass(frozen=True)
class Ended:
    """What an operator has ended. ``head`` is the ledger's; ``left`` are transactions that stay open although
    they should be aborted; ``verdicts`` are those of the last decision, where it was settled."""

    head: Head
    left: frozenset[Pair] = frozenset()
    verdicts: tuple[tuple[Pair, Verdict], ...] = ()


def abort_undecided(ports: Ports, query: str, check: Callable[[Head], None] | None = None) -> Ended:
    """Close the query and abort all that it has open and not decided. A run that is alive stops
    (EOS_CLOSED_BY_OPERATOR); its next start goes on. ``check`` raises where the query's head is not the one that is to
    be closed.

    Raises LedgerError (EOS_LEDGER_NO_QUERY) where the ledger knows nothing of the query, and Unclear
    (EOS_LEDGER_BUSY).
    """
    for _ in ports.retrying():
        _check_known(ports, query)
        closed = close(ports, check=check, by_operator=True)
        if closed is not None:
            ports.reach("recover.closed")
            return Ended(closed, frozenset(clear_earlier(ports, closed)))
    known_head(ports.ledger.read(), query)
    raise ledger_busy()


def recover(ports: Ports, query: str, check: Callable[[Head], None] | None = None) -> Ended:
    """What the next start of the query would do first, without starting it. ``check`` raises where the query's head is
    not the one that is to be closed.

    1. Close the query: from here on, no run before can decide anything.
    2. Abort what is open and not decided.
    3. Commit what is decided, and note that it is.
    4. Abort what has begun since then under an id of the decision.

    It may be interrupted anywhere, and repeated. Raises as `abort_undecided` and `settle_decided` do.
    """
    left = abort_undecided(ports, query, check).left
    ports.reach("recover.cleared")
    ended = settle_decided(ports, query)
    for _ in ports.retrying():
        head = known_head(ports.ledger.read(), query)
        if head.run != NOBODY or not undecided(ports, head):  # a run that has begun since then does that itself
            return replace(ended, head=head, left=left)
        closed = close(ports, NOBODY)
        if closed is not None:
            return replace(ended, head=closed, left=frozenset(clear_earlier(ports, closed)))
    raise ledger_busy()


def _check_known(ports: Ports, query: str) -> None:
    """Raise LedgerError where the ledger knows nothing of the query, before it is taken: what the coordinator knows of
    the last transaction shows that a ledger was lost, and to take it would end that. A ledger that somebody holds
    cannot be read, and tells nothing; where the query itself holds it, to take it is what ends that."""
    try:
        known_head(ports.ledger.read(), query)
    except EosError as error:
        if error.condition != "EOS_LEDGER_HELD":
            raise


def settle_decided(ports: Ports, query: str, *, and_abort_broken: bool = False) -> Ended:
    """Commit every transaction of the query's last decision; their verdicts. With ``and_abort_broken``, those that have
    lost rows in one partition are aborted as a whole before.

    No run need be closed for that: a decision is final, whoever completes it, and a run that is alive does the same.
    That all of it is committed is noted in the ledger. From then on, what is open under one of its transactional ids
    is no part of it, and may be aborted.

    Raises LedgerError (EOS_LEDGER_NO_QUERY), Unclear, and ProtocolStop where rows of a transaction are gone.
    """
    for _ in ports.retrying():
        head = known_head(ports.ledger.read(), query)
        if not agrees(ports, head, ports.coordinator.of_ledger()):
            continue
        decision = head.decision
        written = decision.written if decision is not None else ()
        known = {w.pair: w.verdict for w in written if w.verdict is not None}
        if and_abort_broken:
            abort_broken(ports, written)
        verdicts = known | settle(ports, written)
        unseen = unseen_of(ports, decision, verdicts) if decision is not None else frozenset[Pair]()
        ended = Ended(head, verdicts=tuple(sorted(verdicts.items(), key=lambda item: item[0].id)))
        if Verdict.LOST in verdicts.values() and known_head(ports.ledger.read(), query).decision != decision:
            continue  # the query has gone on meanwhile
        if decision is None or len(known) == len(verdicts) or Verdict.LOST in verdicts.values():
            return ended  # what is lost is noted by the run that writes it again
        ports.reach("recover.committed")
        if _note(ports, head, {pair: verdict for pair, verdict in verdicts.items() if pair not in unseen}):
            return ended
    raise ledger_busy()


def _note(ports: Ports, read: Head, verdicts: Mapping[Pair, Verdict]) -> bool:
    """Try once to publish the verdicts, with the head as it is otherwise. True also where there is another decision by
    now, which was made on these verdicts."""
    term = take(ports, read)
    if term is None:
        return False
    head, decision = term.read(), read.decision
    if head is None or decision is None or head.decision != decision:
        return True
    noted = head.closed(by_operator=head.closed_by_operator) if head.run == NOBODY else head
    try:
        term.publish(replace(noted, decision=decision.judged(verdicts)))
    except NotPublished:
        return False
    return True


def known_head(head: Head | None, query: str) -> Head:
    """The head. Raises LedgerError where there is none: nobody may end what may be decided elsewhere."""
    if head is None:
        raise LedgerError(
            "EOS_LEDGER_NO_QUERY",
            f"The ledger knows nothing of query {query}, so that nobody can tell what of it is decided.",
            hint="Nothing was ended. Name the ledger topic of the query (--ledger-topic); 'spark-eos ledger show' "
            "lists the queries in a ledger.",
            query=query,
        )
    return head


def is_waiting(decision: Decision | None, transactional_id: str) -> bool:
    """Whether this transaction is decided, and without a verdict: it may only be committed. It is told by its id, as in
    `clear_earlier`."""
    written = decision.written if decision is not None else ()
    return any(w.pair.id == transactional_id and w.verdict is None for w in written)
