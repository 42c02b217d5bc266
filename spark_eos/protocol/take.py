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
    """Take the ledger, to go on from ``head``, which was just read; None where there is a newer one by now.

    Raises LedgerError where there was a newer one that is lost.
    """
    return ports.ledger.take() if _is_last(ports, head) else None


def newest_head(ports: Ports) -> Head | None:
    """Return the newest head, for a caller that publishes nothing, so that the ledger need not be taken; None where
    there is none.

    Raises LedgerError where there was a newer one that is lost, and Unclear (EOS_LEDGER_BUSY).
    """
    for _ in ports.retrying():
        head = ports.ledger.read()
        if head is None or _is_last(ports, head):
            return head
    raise stop("EOS_LEDGER_BUSY")


def _is_last(ports: Ports, head: Head) -> bool:
    """Return whether the head that was just read is the newest that there ever was; False where there is a newer one.

    Raises LedgerError where there was a newer one that is lost.
    """
    described = ports.coordinator.of_ledger()
    return agrees(ports, head, described) and (_newer_by(described, head) == 0 or is_newest(ports, head))


def take_and_read(ports: Ports) -> tuple[Term, Head | None] | None:
    """Like `take`, without reading the head first: an open ledger transaction may block the read, and only
    fencing ends that."""
    described = ports.coordinator.of_ledger()
    if described is not None and described.state.commits and not agrees(ports, ports.ledger.read(), described):
        return None
    term = ports.ledger.take()
    head = term.read()
    return (term, head) if head is None or _newer_by(described, head) == 0 or is_newest(ports, head) else None


def taking(ports: Ports) -> Iterator[tuple[Term, Head | None]]:
    """Repeat `take_and_read`, for a caller that publishes next: until that has worked, or time is up."""
    for _ in ports.retrying():
        taken = take_and_read(ports)
        if taken is not None:
            yield taken


def agrees(ports: Ports, head: Head | None, described: Description | None) -> bool:
    """Return whether nothing newer than this head was committed under the ledger's own id, by its description before it
    is taken. False where there is a newer head by now, or a replaced leader returned this one.

    Raises LedgerError where there is none.
    """
    if head is None or (_newer_by(described, head) or 0) <= 0:
        return True
    for _ in ports.retrying():
        again = ports.ledger.read()
        if again is None or again.committed_as != head.committed_as:
            return False
        if (_newer_by(ports.coordinator.of_ledger(), head) or 0) <= 0:
            return True
    raise _heads_lost(head, "that something was committed to the ledger after it")


def _newer_by(described: Description | None, head: Head) -> int | None:
    """Return how far the last commit under the ledger's own id is ahead of the commit of this head. 0 proves that
    nothing came after it. Below 0, the coordinator was replaced and has not noticed. None where it knows of no commit,
    or proves nothing."""
    if described is None or head.committed_as is None or not described.state.commits:
        return None
    producer_id, epoch = head.committed_as
    if described.pair.producer_id == producer_id:
        return described.pair.epoch - epoch
    # An end that uses up the epochs of a producer id leaves the transactional id with another one, at epoch 0: that of
    # this head, or a later one, as after the coordinator has forgotten the id and given it another producer id.
    return (described.pair.epoch or None) if epoch == _LAST_EPOCH else 1


def is_newest(ports: Ports, head: Head) -> bool:
    """Return whether no transaction of a task that the coordinators know shows that there was a newer head than this.
    False where there is one by now, or a replaced leader returned this one.

    Raises LedgerError where there is none. A later decision of the last decision's own run leaves no such trace.
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
    sign = f"the query's newest record has generation {head.generation}, and the brokers know {known}"
    return stop("EOS_LEDGER_TRUNCATED", generation=head.generation, sign=sign)


def is_outrun(head: Head, known: Generations) -> bool:
    """Return whether a task that coordinators know of is of a later run than the head's, or was committed by a later
    decision."""
    if known.begun > head.generation:
        return True
    decision = _decided_here(head)
    if decision is None:
        return known.committed == head.generation
    return bool(decision.written) and known.committed > known.decided


def _decided_here(head: Head) -> Decision | None:
    """Return the last decision, if it was made in this ledger; otherwise no task has committed anything by the head."""
    return None if head.decision is None or head.decision.is_assumed else head.decision


def was_published(ports: Ports) -> bool:
    """Return whether the coordinators know of a head of the query, or of a task that it has decided on, as they do for
    a week: then the head was lost with the ledger, and maybe the decision on the first micro-batch.

    Every producer of a task counts, as none begins before the head is published. An abort is no proof that nothing was
    decided, nor is a producer without a transaction: where an end did not fence, a late request may have opened the
    transaction once more after its commit, and a later run has fenced it.
    """
    return any(each.state.commits or not is_ledger_name(each.pair.id) for each in ports.coordinator.known())
