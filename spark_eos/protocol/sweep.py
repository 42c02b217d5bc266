"""What attempts of a committed micro-batch have left open after its commit has looked."""

from __future__ import annotations

from collections.abc import Collection

from spark_eos.protocol.head import Head, Pair
from spark_eos.protocol.names import SLOTS
from spark_eos.protocol.ports import Ports
from spark_eos.protocol.verdicts import abort_all

#: When a query that has nothing to commit looks again, in seconds each after the look before. Attempts that Spark kills
#: are gone by then, and those that it does not kill abort themselves (`check_owner`).
SWEEPS_AFTER_S = (2, 8, 30)


def sweep(ports: Ports, run: str, batch: int) -> Collection[Pair] | None:
    """Abort what this run's attempts have left open of its last micro-batch; returns what that was, or None when the
    run has gone on, or was replaced.

    A commit aborts leftovers, but an attempt that nobody waits for may begin its transaction later, and be killed: it
    holds readers at the last stable offset until its timeout, or until the next commit, which may be far.

    1. List what is open in the micro-batch's slot.
    2. Then read the head. While the micro-batch is the last decision, no task of the one after the next has begun,
       which is the next to use that slot. So what was listed can never be decided, however late it is aborted.

    With two-phase commit no timeout would end what is not found: ids under which nothing is open yet are fenced, too,
    and those of earlier generations are looked for again. Nothing of theirs can be decided either.
    """
    ports.ledger.check_topic()
    head = _last_of(ports, run, batch)
    if head is None:
        return None
    found = [*ports.coordinator.ongoing(of=(head.generation, batch % SLOTS), empty=head.two_phase)]
    if head.two_phase:
        found += ports.coordinator.ongoing(before=head.generation, empty=True)
    head = _last_of(ports, run, batch)
    if head is None:
        return None
    decided = {w.pair.id for w in head.decision.written} if head.decision else set()
    left = {d.pair for d in found if d.pair.id not in decided}
    abort_all(ports, left)
    return left


def _last_of(ports: Ports, run: str, batch: int) -> Head | None:
    """The head, while it is this run's and this micro-batch is its last decision."""
    head = ports.ledger.read()
    if head is None or head.run != run or head.decision is None or head.decision.batch != batch:
        return None
    return head
