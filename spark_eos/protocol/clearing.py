"""What is open of a query and not decided: ended for good, once nobody can decide it any more."""

from __future__ import annotations

from collections.abc import Collection

from spark_eos.kafka.transactions import FENCING_END
from spark_eos.protocol.head import Head, Pair
from spark_eos.protocol.ports import Ports
from spark_eos.protocol.verdicts import abort_all

#: How often it is looked for what earlier generations have left open, at most, where that never expires.
_LOOKS = 4


def clear_earlier(ports: Ports, head: Head, *, empty: bool = False) -> Collection[Pair]:
    """Abort what generations before a published head have open and not decided; what stays open is returned.

    Where EndTxn does not fence, an attempt that is alive could begin its transaction once more. So its id is taken:
    what is decided from now on has ids of later generations, so that this can hit nothing else, however late it comes.

    With two-phase commit, no timeout will end what begins a moment later: the ids of attempts that have not written
    anything yet are fenced, too, and the coordinators are asked again until there is nothing more. With ``empty`` these
    are fenced in any case.
    """
    left: Collection[Pair] = ()
    for _ in range(_LOOKS if head.two_phase else 1):
        pairs = undecided(ports, head, before=head.generation, empty=empty)
        left = end_for_good(ports, pairs)
        if not pairs or left:
            break
    return left


def clear_found(ports: Ports, head: Head, found: Collection[Pair]) -> Collection[Pair]:
    """The same for what was found before the head was published, of whichever generation: where a ledger was lost,
    generations are counted anew. What was decided meanwhile is left alone."""
    decided = {pair.id for pair in head.decision.pairs} if head.decision else set()
    end_for_good(ports, {pair for pair in found if pair.id not in decided})
    return clear_earlier(ports, head)


def undecided(ports: Ports, head: Head, *, before: int | None = None, empty: bool = False) -> Collection[Pair]:
    """What the query, or the generations before this one, have open, without what the decision waits for.

    That is told by its id: a broker that failed to fence it (Kafka 4.0.0) describes it at the next epoch.
    """
    waiting = {w.pair.id for w in head.decision.written if w.verdict is None} if head.decision else set()
    found = ports.coordinator.ongoing(before=before, empty=empty or head.two_phase)
    return {d.pair for d in found if d.pair.id not in waiting}


def end_for_good(ports: Ports, pairs: Collection[Pair]) -> Collection[Pair]:
    """Abort transactions, and fence who has begun them; those that are left are returned."""
    if not pairs or ports.coordinator.endtxn_version() >= FENCING_END:
        return abort_all(ports, pairs)
    left = {pair.id for pair in pairs}
    for _ in ports.retrying():
        left = set(ports.coordinator.fence(left))
        if not left:
            break
    return {pair for pair in pairs if pair.id in left}
