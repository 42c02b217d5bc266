"""Take the ledger, and prove that its head is the newest that it ever had: an unclean leader election takes the newest
records, and the head before them looks like any other.

The coordinators know for a week the transactions of tasks, none of which begins before its run is published or is
committed before it is decided. They know the last transaction under the ledger's own id until the ledger is taken
again, so it is looked at first.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_eos.errors import EosError, stop
from spark_eos.protocol.head import BatchWrite, Decision, Head
from spark_eos.protocol.names import is_ledger_name
from spark_eos.protocol.ports import Description, Generations, Ports, Term

#: The epoch in which a producer id ends whose epochs are used up: the transactional id has another one by then.
_LAST_EPOCH = 32_767


def take(ports: Ports, head: Head) -> Term | None:
    """Take the ledger, to go on from ``head``, which was just read; None where there is another one by now.

    Raises LedgerError where there was a newer one that is lost.
    """
    return ports.ledger.take() if _is_last(ports, head) else None


def newest_head(ports: Ports) -> Head | None:
    """The newest head, for a caller that publishes nothing, so that the ledger need not be taken; None where there is
    none.

    Raises LedgerError where there was a newer one that is lost, and Unclear (EOS_LEDGER_BUSY).
    """
    for _ in ports.retrying():
        head = ports.ledger.read()
        if head is None or _is_last(ports, head):
            return head
    raise stop("EOS_LEDGER_BUSY")


def _is_last(ports: Ports, head: Head) -> bool:
    """Whether the head that was just read is the newest that there ever was. False where there is another one by now.

    Raises LedgerError where there was a newer one that is lost.
    """
    found = ports.coordinator.of_ledger()
    return agrees(ports, head, found) and (_newer_by(found, head) == 0 or is_newest(ports, head))


def take_and_read(ports: Ports) -> tuple[Term, Head | None] | None:
    """Like `take`, without reading the head first: an open ledger transaction may block the read, and only
    fencing ends that."""
    found = ports.coordinator.of_ledger()
    if found is not None and found.state.commits and not agrees(ports, ports.ledger.read(), found):
        return None
    term = ports.ledger.take()
    head = term.read()
    return (term, head) if head is None or _newer_by(found, head) == 0 or is_newest(ports, head) else None


def taking(ports: Ports) -> Iterator[tuple[Term, Head | None]]:
    """`take_and_read` again and again, for a caller that publishes next: until that has worked, or time is up."""
    for _ in ports.retrying():
        taken = take_and_read(ports)
        if taken is not None:
            yield taken


def agrees(ports: Ports, head: Head | None, found: Description | None) -> bool:
    """Whether the ledger's own id, as ``found`` before it is taken, has committed nothing that is newer than this head.
    False where there is another head by now, or the first look was at a leader that had been replaced.

    Raises LedgerError where there is none.
    """
    if head is None or (_newer_by(found, head) or 0) <= 0:
        return True
    for _ in ports.retrying():
        again = ports.ledger.read()
        if again is None or again.committed_as != head.committed_as:
            return False
        if (_newer_by(ports.coordinator.of_ledger(), head) or 0) <= 0:
            return True
    raise _heads_lost(head, "that something was committed to the ledger after it")


def _newer_by(found: Description | None, head: Head) -> int | None:
    """How far the last commit under the ledger's own id, as ``found``, is ahead of the commit of this head. 0 proves
    that nothing came after it. Below 0, a coordinator was replaced and has not noticed. None where it knows of none, or
    does not prove it."""
    if found is None or head.committed_as is None or not found.state.commits:
        return None
    producer_id, epoch = head.committed_as
    if found.pair.producer_id == producer_id:
        return found.pair.epoch - epoch
    # An end that uses up the epochs of a producer id leaves the transactional id with another one, at epoch 0: that of
    # this head, or a later one, as after the coordinator has forgotten the id and given it another producer id.
    return (found.pair.epoch or None) if epoch == _LAST_EPOCH else 1


def is_newest(ports: Ports, head: Head) -> bool:
    """Whether nothing that the coordinators know of tasks says that there was a newer head than this. False where there
    is one by now, or the first look was at a leader that had been replaced.

    Raises LedgerError where there is none. What the last decision's own run has decided after it leaves no such trace.
    """
    if isinstance(head.write, BatchWrite) and head.decision is not None and not head.decision.written:
        return True  # a batch write that is completed: nothing is decided after that
    decision = _decided_here(head)
    decided = [w.pair.id for w in decision.written] if decision is not None else []
    since = 0 if decided else head.generation + (decision is not None)
    if not is_outrun(head, ports.coordinator.generations(decided, since=since)):
        return True
    for _ in ports.retrying():
        if ports.ledger.read() != head:
            return False
    raise _heads_lost(head, "transactions of its tasks that a later run began, or a later decision committed")


def _heads_lost(head: Head, known: str) -> EosError:
    sign = f"the newest one of the query has generation {head.generation}, and the brokers know {known}"
    return stop("EOS_LEDGER_TRUNCATED", generation=head.generation, sign=sign)


def is_outrun(head: Head, known: Generations) -> bool:
    """Whether these are of a later run than the head's, or were committed by a later decision."""
    if known.begun > head.generation:
        return True
    decision = _decided_here(head)
    if decision is None:
        return known.committed == head.generation
    return bool(decision.written) and known.committed > known.decided


def _decided_here(head: Head) -> Decision | None:
    """The last decision, if it was made in this ledger; else, by what the head says, no task has committed anything."""
    return None if head.decision is None or head.decision.is_assumed else head.decision


def was_published(ports: Ports) -> bool:
    """Whether the coordinators know, as they do for a week, of a head of the query, or of a task that it has decided
    on: a head that is not there any more was lost with the ledger, and maybe the decision of the first micro-batch.

    Every producer of a task counts, whatever has become of its transaction, as none begins before the head is
    published. An abort is no proof that nothing was decided, nor is a producer without a transaction: where an end did
    not fence, a late request may have opened the transaction once more after its commit, and a later run has fenced it.
    """
    return any(found.state.commits or not is_ledger_name(found.pair.id) for found in ports.coordinator.known())
