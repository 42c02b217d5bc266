"""The steps in the ledger when a micro-batch that is planned and not decided is dropped, so that Spark plans it anew.

The order is that of a replay in place (`spark_eos.protocol.replaying`): a head that no start gets past, then the
checkpoint's files, then a head without that mark. What was decided last stays as it is, and is none of this: the next
start settles it. Each step may be repeated.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from spark_eos.errors import ReplayError
from spark_eos.protocol.clearing import clear_earlier
from spark_eos.protocol.closing import known_head
from spark_eos.protocol.head import Head, Pair
from spark_eos.protocol.marks import Unfinished
from spark_eos.protocol.newest import take, taking
from spark_eos.protocol.ports import NotPublished, Ports
from spark_eos.protocol.replaying import check_not_halted
from spark_eos.protocol.stops import ledger_busy


def halt(ports: Ports, unfinished: Unfinished) -> Collection[Pair]:
    """Publish a head that belongs to no run and that no start gets past, then abort what is open and not decided;
    what stays open all the same is returned. A run that is alive can decide nothing from then on, and stops.

    Raises LedgerError (EOS_LEDGER_NO_QUERY), Unclear, and ReplayError where the micro-batch is decided, or something
    else has halted the query.
    """
    for _ in ports.retrying():
        # Whoever takes the ledger ends its last transaction, which tells of a ledger that was lost.
        term = take(ports, known_head(ports.ledger.read(), unfinished.of))
        if term is None:
            continue
        head = known_head(term.read(), unfinished.of)
        if head.marks.unfinished != unfinished:
            check_not_halted(head)
            check_undecided(head, unfinished.dropped)
            halted = replace(head.closed(by_operator=True), marks=replace(head.marks, unfinished=unfinished))
            try:
                term.publish(halted)
            except NotPublished:
                continue
            ports.reach("drop.halted")
            head = halted
        return clear_earlier(ports, head)
    raise ledger_busy()


def resume(ports: Ports, unfinished: Unfinished) -> Head:
    """Publish the head without the mark: from here on, a start plans the micro-batch anew. Where that is done already,
    it changes nothing. Raises Unclear."""
    for term, found in taking(ports):
        head = known_head(found, unfinished.of)
        if head.marks.unfinished != unfinished:
            return head  # by somebody who has finished it at the same time
        resumed = replace(head.closed(by_operator=True), marks=replace(head.marks, unfinished=None))
        try:
            term.publish(resumed)
        except NotPublished:
            continue
        ports.reach("drop.resumed")
        return resumed
    raise ledger_busy()


def check_undecided(head: Head, batch: int) -> None:
    """Raise ReplayError where the micro-batch is decided: its rows are, or will be, visible."""
    last = head.decision
    if last is not None and last.batch >= batch:
        raise ReplayError(
            "EOS_DROP_DECIDED",
            f"Micro-batch {batch} is decided (the last decision is micro-batch {last.batch}): its rows are visible, or "
            "will be.",
            hint="Nothing was changed. Start the query: it commits what is decided, and does not write it again, "
            "however large it is.",
            batch=batch,
        )
