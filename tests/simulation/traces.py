"""What the coordinators tell of heads that a ledger has lost."""

from __future__ import annotations

from spark_eos.protocol.head import Head
from spark_eos.protocol.names import ledger_name, newest_generation
from spark_eos.protocol.ports import State

from .coordinator import LAST_EPOCH, WEEK_MS, Cluster, Entry
from .ledger import PREFIX


def by_ledger(cluster: Cluster, query: str, head: Head) -> bool:
    """Whether the ledger's own id has committed something after this head. Another producer id, at epoch 0, may be what
    the head's own end has left the id with, if that used up the epochs."""
    entry = _kept(cluster).get(ledger_name(PREFIX, query))
    if entry is None or not entry.state.commits:
        return False
    used_up = head.committed_as is not None and head.committed_as[1] > LAST_EPOCH
    return (entry.producer_id, entry.epoch) != head.committed_as and not (used_up and entry.epoch == 0)


def by_tasks(cluster: Cluster, query: str, head: Head) -> bool:
    """Whether tasks of a later run have begun transactions, or a later decision has committed some. Of the run's own,
    that is seen only where it had none before."""
    states = {name: entry.state for name, entry in _kept(cluster).items()}
    begun = [name for name, state in states.items() if state is not State.EMPTY]
    if newest_generation(PREFIX, query, begun) > head.generation:
        return True
    committed = newest_generation(PREFIX, query, [name for name in begun if states[name].commits])
    decision = head.decision
    if decision is None or not decision.tasks:
        return committed == head.generation
    written = [pair.id for pair in decision.pairs]
    return bool(written) and committed > newest_generation(PREFIX, query, written)


def _kept(cluster: Cluster) -> dict[str, Entry]:
    """What is held of each id, without those that are about to be forgotten."""
    entries = {name: slot.entry for name, slot in cluster._slots.items()}
    return {name: entry for name, entry in entries.items() if entry.updated_ms > cluster._world.now - WEEK_MS}
