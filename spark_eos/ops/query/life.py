"""Whether somebody runs a query, by what it leaves behind: it cannot be known for sure.

A run publishes a head for each micro-batch, plans micro-batches in its checkpoint, and its tasks begin transactions and
write. A run that waits for rows does none of that, so that "no sign" does not mean that there is none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from spark_eos.checkpoint import Checkpoint
from spark_eos.kafka.admin.topics import end_offsets
from spark_eos.ledger.owners import Cluster, Transaction, find
from spark_eos.ops.checkpoint.heads import OwnHead
from spark_eos.ops.ledger.command import entries
from spark_eos.protocol.head import NOBODY
from spark_eos.topic_partition import TopicPartition, by_topic


@dataclass(frozen=True)
class Life:
    """``signs``: what moved while it was looked at, in a few words. ``last_s``: seconds since the newest sign before
    that, None without any. ``closed``: no run has the query."""

    signs: Sequence[str]
    last_s: float | None
    closed: bool

    def running(self, quiet_s: float) -> bool | None:
        """Whether somebody runs it; None where nobody can tell. ``quiet_s``: a sign that is younger counts."""
        if self.signs or (not self.closed and self.last_s is not None and self.last_s < quiet_s):
            return True
        return False if self.closed else None


@dataclass(frozen=True)
class _Look:
    """What a run would move."""

    heads: frozenset[tuple[str, int, int]]
    open: frozenset[TopicPartition]
    ends: frozenset[tuple[str, int, int]]
    planned: frozenset[str]


def look_for_life(checkpoint: Checkpoint, cluster: Cluster, heads: Sequence[OwnHead], watch_s: float) -> Life:
    """Look twice, ``watch_s`` seconds apart. Raises EosError."""
    before, ages = _look(checkpoint, cluster, heads)
    signs: list[str] = []
    if watch_s > 0:
        time.sleep(watch_s)
        after, _ = _look(checkpoint, cluster, heads)
        moved = {
            "a head was published": after.heads != before.heads,
            "a transaction was begun": bool(after.open - before.open),
            "rows were written": bool({place[:2] for place in after.ends - before.ends} & _places(before)),
            "the checkpoint has changed": after.planned != before.planned,
        }
        signs = [what for what, true in moved.items() if true]
    return Life(signs, min(ages, default=None), all(own.head.run == NOBODY for own in heads))


def _places(look: _Look) -> set[TopicPartition]:
    return {(topic, partition) for topic, partition, _ in look.ends}


def _look(checkpoint: Checkpoint, cluster: Cluster, heads: Sequence[OwnHead]) -> tuple[_Look, list[float]]:
    """And how many seconds ago the newest head, and each transaction of the newest generation, began."""
    keys = {own.key: own.head.generation for own in heads}
    published = entries(cluster, keys) if keys else []
    transactions = find(cluster, list(keys)) if keys else []
    own = [t for t in transactions if t.generation == keys.get(t.query)]
    ages = [entry.age_s for entry in published if entry.age_s is not None] + [t.open_s for t in own]
    return (
        _Look(
            frozenset((entry.key, entry.dated.partition, entry.dated.offset) for entry in published),
            frozenset((t.id, t.epoch) for t in transactions),
            _ends(cluster, own),
            frozenset([*checkpoint.names("offsets"), *(f"c{name}" for name in checkpoint.names("commits"))]),
        ),
        ages,
    )


def _ends(cluster: Cluster, transactions: Sequence[Transaction]) -> frozenset[tuple[str, int, int]]:
    """Where the partitions end that these transactions write to."""
    asked = by_topic(sorted({place for t in transactions for place in t.places}))
    found = end_offsets(cluster.kafka, asked, "read_uncommitted") if asked else {}
    return frozenset((topic, partition, at) for topic, of in found.items() for partition, at in of.items())
