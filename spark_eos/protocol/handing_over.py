"""The steps in the ledger when another query goes on in the place of this one: a mirror that takes topics over.

The position at which the new query begins was read while the old one could still decide. So the old query is retired
only where its last decision is the one that the position belongs to. To publish that takes its ledger, which fences it,
and the head that is published stops every later start of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_eos.kafka.partitioners import DEFAULT_PARTITIONER
from spark_eos.protocol.clearing import clear_earlier
from spark_eos.protocol.head import NOBODY, Decision, Head
from spark_eos.protocol.looking_back import unseen_of
from spark_eos.protocol.marks import Successor
from spark_eos.protocol.newest import agrees, taking
from spark_eos.protocol.ports import NotPublished, Ports
from spark_eos.protocol.replaying import check_not_halted
from spark_eos.protocol.stops import ledger_busy
from spark_eos.protocol.verdicts import settle


@dataclass(frozen=True)
class Standing:
    """How a query stands: its last ``decision`` with all verdicts, None where it has decided nothing. ``retired``: no
    start gets past its head, so that this is final, and ``successor`` is the query that goes on in its place."""

    decision: Decision | None
    retired: bool = False
    successor: str = ""


def standing(ports: Ports) -> Standing:
    """Settle the query's last decision, which is final whoever completes it, and tell how the query stands.

    It may decide in the next moment, unless it is retired. Raises Unclear, and what reading the ledger raises.
    """
    for _ in ports.retrying():
        head = ports.ledger.read()
        if head is None:
            return Standing(None)
        if agrees(ports, head, ports.coordinator.of_ledger()):
            last, successor = head.decision, head.marks.successor
            decision = None if last is None else _settled(ports, last)
            return Standing(decision, successor is not None, "" if successor is None else successor.query)
    raise ledger_busy()


def _settled(ports: Ports, last: Decision) -> Decision:
    """The decision with its verdicts. Raises ProtocolStop (EOS_ROWS_MISSING), too, as whoever goes on from here would
    leave out what an operator has aborted."""
    verdicts = settle(ports, last.written)
    unseen_of(ports, last, verdicts)
    return last.judged(verdicts)


def hand_over(ports: Ports, successor: Successor, seen: Standing, prefix: str) -> bool:
    """Retire the query in favour of its successor, as long as it has decided nothing since it was ``seen``. False where
    it has: then nothing is changed, and it goes on.

    1. Take the ledger, and read: from here on, whoever had it can decide nothing more by that.
    2. Publish the head that no start gets past; a query without a head gets its first one, with this ``prefix``.
    3. Abort what is open and not decided: nobody else ever would.

    A run that is alive stops (EOS_QUERY_RETIRED). It may be repeated. Raises Unclear, and ReplayError where a replay of
    the query, or the drop of a micro-batch, is not finished.
    """
    for term, found in taking(ports):
        head = found or _first(ports, prefix)
        if head.marks.successor is None:
            check_not_halted(head)
            if not is_same(head.decision, seen.decision):
                return False
            marks = replace(head.marks, successor=successor)
            retired = replace(head.closed(by_operator=True), decision=seen.decision, marks=marks)
            try:
                term.publish(retired)
            except NotPublished:
                continue
            ports.reach("mirror.retired")
            head = retired
        clear_earlier(ports, head)
        return True
    raise ledger_busy()


def is_same(decision: Decision | None, other: Decision | None) -> bool:
    """Whether these are one decision, whatever is known of its outcome."""
    if decision is None or other is None:
        return decision is other
    return (decision.batch, decision.rev, decision.pairs) == (other.batch, other.rev, other.pairs)


def _first(ports: Ports, prefix: str) -> Head:
    """What stands for the head of a query that has none: it has begun no task, or its ledger is lost."""
    begun = ports.coordinator.generations(thorough=True).begun
    version = ports.coordinator.endtxn_version()
    return Head(NOBODY, begun, (), version, prefix=prefix, partitioner=DEFAULT_PARTITIONER)
