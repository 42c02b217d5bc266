"""The steps in the ledger when a micro-batch that is planned and not decided is dropped, so that Spark plans it anew.

The order is that of a replay in place (`spark_eos.protocol.replaying`): a head that no start gets past, then the
checkpoint's files, then a head without that mark. What was decided last stays as it is, and is none of this: the next
start settles it. The command may be repeated from its beginning; whoever does so takes over from a command that stalls
(`spark_eos.protocol.held`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from spark_eos.errors import ReplayError
from spark_eos.protocol.clearing import clear_earlier
from spark_eos.protocol.head import Head, Pair
from spark_eos.protocol.held import publish_next
from spark_eos.protocol.marks import Unfinished
from spark_eos.protocol.ports import Ports
from spark_eos.protocol.replaying import check_not_halted


def halt(
    ports: Ports, unfinished: Unfinished, judged: Head, check_files: Callable[[], None] = lambda: None
) -> tuple[Head, Collection[Pair]]:
    """Publish a head that belongs to no run and that no start gets past, then abort what is open and not decided.
    Returns the head, and what stays open all the same. A run that is alive can decide nothing from then on, and stops;
    so does a command that has published the same mark before, and has stalled since.

    ``judged``: the head by which it was found that the micro-batch may be dropped. ``check_files`` raises where the
    checkpoint is not as it was judged; it is called when the ledger is taken.

    Raises LedgerError, Unclear, CommandError (EOS_COMMAND_OVERTAKEN), and ReplayError where the micro-batch is
    decided, or something else has halted the query.
    """

    def following(head: Head) -> Head:
        if head.marks.unfinished != unfinished:
            check_not_halted(head)
        check_undecided(head, unfinished.dropped)
        check_files()
        halted = head.closed(by_operator=True)
        return replace(halted, marks=replace(head.marks, unfinished=unfinished))

    halted = publish_next(ports, unfinished.of, judged, following)
    ports.reach("drop.halted")
    return halted, clear_earlier(ports, halted)


def resume(ports: Ports, unfinished: Unfinished, halted: Head) -> Head:
    """Publish the head without the mark: from here on, a start plans the micro-batch anew. ``halted``: what `halt` has
    published. Raises CommandError (EOS_COMMAND_OVERTAKEN) where that is not the newest head any more, and Unclear."""

    def following(head: Head) -> Head:
        return replace(head.closed(by_operator=True), marks=replace(head.marks, unfinished=None))

    resumed = publish_next(ports, unfinished.of, halted, following)
    ports.reach("drop.resumed")
    return resumed


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
