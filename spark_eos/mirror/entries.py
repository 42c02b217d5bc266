"""The offset map: which offset of the target each row of the source has. No I/O.

One record for each range that a task has copied, written in the task's own transaction: so it is visible if and only if
the rows are. Its key is the range's place in the source, so that a repair takes the place of what was lost; ranges
without a row have a record, too, by which a reader knows that nothing is missing there.
"""

from __future__ import annotations

import bisect
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

#: Of one record: with more, a range has several, so that none is too large for a topic.
MOST_RUNS = 5_000

#: (first offset, number) of offsets without a gap.
Stretches = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class SourcePartition:
    """A partition of a topic of a cluster, both by their ids."""

    cluster: str
    topic_id: str
    partition: int


@dataclass(frozen=True)
class OffsetRun:
    """``count`` rows that lie without a gap in the source, from offset ``source`` on, and in the target."""

    source: int
    target: int
    count: int


@dataclass(frozen=True)
class MapEntry:
    """Offsets ``first`` to ``end``, exclusive, of a source: those with a row are in ``runs``, by their order.

    ``topic``: the name of the source's topic; ``target``, ``target_id``: name and id of the target's, whose partition
    has the same number.
    """

    source: SourcePartition
    topic: str
    first: int
    end: int
    target: str
    target_id: str
    runs: tuple[OffsetRun, ...]


def runs_of(source: Stretches, target: Stretches) -> tuple[OffsetRun, ...]:
    """The same rows, in the same order, by their offsets on both sides. Raises ValueError unless they are as many."""
    runs: list[OffsetRun] = []
    ours, theirs = list(source)[::-1], list(target)[::-1]
    while ours and theirs:
        (at, left), (there, room) = ours.pop(), theirs.pop()
        count = min(left, room)
        last = runs[-1] if runs else OffsetRun(at, there, 0)
        if (last.source + last.count, last.target + last.count) == (at, there):
            runs[-1:] = [OffsetRun(last.source, last.target, last.count + count)]
        else:
            runs.append(OffsetRun(at, there, count))
        if left > count:
            ours.append((at + count, left - count))
        if room > count:
            theirs.append((there + count, room - count))
    if ours or theirs:
        raise ValueError("not as many rows in the target as in the source")
    return tuple(runs)


def cut(entry: MapEntry) -> Iterator[MapEntry]:
    """The entry as one or more that are not too large."""
    starts = [entry.first, *(run.source for run in entry.runs[MOST_RUNS::MOST_RUNS])]
    for number, (first, end) in enumerate(zip(starts, [*starts[1:], entry.end], strict=True)):
        some = entry.runs[number * MOST_RUNS : (number + 1) * MOST_RUNS]
        yield MapEntry(entry.source, entry.topic, first, end, entry.target, entry.target_id, some)


def to_record(entry: MapEntry) -> tuple[bytes, bytes]:
    """Key and value, as JSON. Of runs, the differences to the end of the run before."""
    source = entry.source
    key = {"cluster": source.cluster, "topic": source.topic_id, "partition": source.partition, "first": entry.first}
    runs, at, there = [], entry.first, 0
    for run in entry.runs:
        runs.append([run.source - at, run.target - there, run.count])
        at, there = run.source + run.count, run.target + run.count
    value = {"topic": entry.topic, "end": entry.end, "target": entry.target, "id": entry.target_id, "runs": runs}
    return _text(key), _text(value)


def from_record(key: bytes, value: bytes) -> MapEntry | None:
    """The inverse of `to_record`; None for any other record."""
    place: dict[str, Any] = json.loads(key)
    if "first" not in place:
        return None
    fields = json.loads(value)
    runs, at, there = [], place["first"], 0
    for gap, jump, count in fields["runs"]:
        runs.append(OffsetRun(at + gap, there + jump, count))
        at, there = at + gap + count, there + jump + count
    source = SourcePartition(place["cluster"], place["topic"], place["partition"])
    return MapEntry(source, fields["topic"], place["first"], fields["end"], fields["target"], fields["id"], tuple(runs))


def partition_of(source: SourcePartition, count: int) -> int:
    """Where a map of so many partitions has the entries of a source. The first one is for the origins of topics, which
    whoever asks for them can read without the rest."""
    name = f"{source.cluster} {source.topic_id} {source.partition}".encode()
    return 1 + zlib.crc32(name) % (count - 1) if count > 1 else 0


@dataclass(frozen=True)
class TargetPosition:
    """A position in the target."""

    topic: str
    topic_id: str
    partition: int
    offset: int


class Translation:
    """The entries of one partition of the source, at least one. ``doubled``: rows of it were mirrored more than once,
    as by a mirror that was started from the beginning again, so that they are twice in the target."""

    def __init__(self, entries: Iterable[MapEntry]) -> None:
        self.entries = sorted(entries, key=lambda entry: entry.first)
        self.begin = self.entries[0].first
        self.end = max(entry.end for entry in self.entries)
        self.doubled = any(one.end > after.first for one, after in pairwise(self.entries))
        self._firsts = [entry.first for entry in self.entries]
        self._runs = [(run, entry) for entry in self.entries for run in entry.runs]
        self._lasts = [run.source + run.count for run, _ in self._runs]

    def covers(self, offset: int) -> bool:
        """Whether all that is before this position, and after the first entry, has been mirrored up to it, once."""
        before = self.entries[max(0, bisect.bisect_right(self._firsts, offset) - 1)]
        return not self.doubled and before.first <= offset <= before.end

    def place(self, offset: int) -> TargetPosition:
        """Where a reader of the target goes on that has read everything before this position of the source."""
        number = bisect.bisect_right(self._lasts, offset)
        if number < len(self._runs):
            run, entry = self._runs[number]
            return _place(entry, run.target + max(0, offset - run.source))
        if self._runs:
            run, entry = self._runs[-1]
            return _place(entry, run.target + run.count)
        return _place(self.entries[-1], 0)


def _place(entry: MapEntry, offset: int) -> TargetPosition:
    return TargetPosition(entry.target, entry.target_id, entry.source.partition, offset)


def _text(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
