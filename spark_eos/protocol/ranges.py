"""What a micro-batch of the direct way is made of: ranges of the source's offsets, in place of rows.

A replay of what is decided is equal if it has the same cluster, topics, transform and offsets, however these are dealt
to tasks. Rows are read again only where some were lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, order=True)
class Range:
    """Offsets of a partition of the source, from ``start`` up to, not including, ``end``.

    ``first_epoch``, ``last_epoch``: the leader epochs of the records before ``start`` and before ``end``; no record of
    the range has a later one than ``most_epoch``. -1 where one is not known.
    """

    topic: str
    partition: int
    start: int
    end: int
    first_epoch: int = field(default=-1, compare=False)
    last_epoch: int = field(default=-1, compare=False)
    most_epoch: int = field(default=-1, compare=False)


@dataclass(frozen=True)
class Direct:
    """What rows were made of, and by what.

    ``cluster`` is the source's id, ``topics`` are (name, id) of each topic, sorted. ``transform`` is the name of the
    function that rows went through, None where they were copied. ``ranges``: of a task, those that Spark gave to it; of
    a decision, those of tasks that wrote nothing, as the others are with what was written.
    """

    cluster: str
    topics: tuple[tuple[str, str], ...]
    transform: str | None
    ranges: tuple[Range, ...] = ()


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same offsets in as few ranges as possible, sorted; None of them may be in two."""
    result: list[Range] = []
    for r in sorted(ranges):
        last = result[-1] if result else None
        if last is not None and (last.topic, last.partition, last.end) == (r.topic, r.partition, r.start):
            result[-1] = replace(r, start=last.start, first_epoch=last.first_epoch)
        else:
            result.append(r)
    return tuple(result)


def union(parts: Iterable[Direct]) -> Direct:
    """All that these tasks were given. They belong to one micro-batch, so that only their ranges and topics differ."""
    every = list(parts)
    topics = tuple(sorted({pair for part in every for pair in part.topics}))
    return Direct(every[0].cluster, topics, every[0].transform, merged(r for part in every for r in part.ranges))
