"""Entries of the offset map: which offset of the target each row of the source has. No I/O.

There is one record for each range that a task has copied, written in the task's own transaction: so it is visible if
and only if the rows are. Its key is the range's place in the source, so that the record of a repair replaces that of
what was lost. A range without rows has a record, too: it shows readers that nothing is missing there.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Of one record: with more, a range has several, so that none is too large for a topic.
MOST_RUNS = 5_000

#: Partitions of the map's topic that have entries, where it has more than that: the mirror makes it with one more.
ENTRY_PARTITIONS = 8

_FIRST = b',"first":'

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
    """Runs of rows, by their offsets on both sides, in order. Raises ValueError unless both sides have as many."""
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
    runs, at, there = [], entry.first, 0
    for run in entry.runs:
        runs.append([run.source - at, run.target - there, run.count])
        at, there = run.source + run.count, run.target + run.count
    value = {"topic": entry.topic, "end": entry.end, "target": entry.target, "id": entry.target_id, "runs": runs}
    return key_of(place_of(entry.source), entry.first), _text(value)


def place_of(source: SourcePartition) -> bytes:
    """How the keys of all entries of a partition begin; no other partition's do."""
    return _text({"cluster": source.cluster, "topic": source.topic_id, "partition": source.partition})[:-1]


def key_of(place: bytes, first: int) -> bytes:
    """The key of the entry whose range begins at ``first``; ``place`` is in the form of `place_of`."""
    return b"%b%b%d}" % (place, _FIRST, first)


def split_key(key: bytes | None) -> tuple[bytes, int] | None:
    """The inverse of `key_of`; None for a record that is no entry."""
    place, found, first = (key or b"").rpartition(_FIRST)
    return (place, int(first[:-1])) if found else None


@dataclass(frozen=True)
class Extent:
    """What is needed to find an entry: the ``end`` of its range; the offset behind its last row, in the source
    (``rows``) and in the target (``target_end``), and the target's of its first row, all -1 if it has none; and the
    target's id."""

    end: int
    rows: int
    target_begin: int
    target_end: int
    target_id: str


def extent(first: int, value: bytes) -> Extent:
    """The extent of the entry whose range begins at ``first``, without decoding the rest of it."""
    fields = json.loads(value)
    runs = fields["runs"]
    if not runs:
        return Extent(fields["end"], -1, -1, -1, fields["id"])
    rows = first + sum(gap + count for gap, _, count in runs)
    return Extent(fields["end"], rows, runs[0][1], sum(jump + count for _, jump, count in runs), fields["id"])


def has_rows(value: bytes) -> bool:
    """Whether an entry has any, by its value as `to_record` writes it."""
    return not value.endswith(b'"runs":[]}')


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
    whoever asks for them can read without the rest. A map that gets more partitions than the mirror gives it has its
    entries where they were."""
    name = f"{source.cluster} {source.topic_id} {source.partition}".encode()
    return 1 + zlib.crc32(name) % min(count - 1, ENTRY_PARTITIONS) if count > 1 else 0


@dataclass(frozen=True)
class TargetPosition:
    """A position in the target."""

    topic: str
    topic_id: str
    partition: int
    offset: int


def position_in(entry: MapEntry, offset: int) -> TargetPosition:
    """Where a reader of the target goes on that has read all before ``offset``, by an entry with rows: at its first row
    that is not before it or, if all are, behind the last one."""
    there = entry.runs[0].target
    for run in entry.runs:
        there = run.target + min(max(0, offset - run.source), run.count)
        if offset < run.source + run.count:
            break
    return TargetPosition(entry.target, entry.target_id, entry.source.partition, there)


def _text(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


_GONE = -1
_FIELDS = 7


class Extents:
    """The map's entries of one partition of the source, in the order of the map's log: 56 bytes for each."""

    def __init__(self) -> None:
        self._found = array("q")
        self._targets: dict[str, int] = {}

    def add(self, at: int, first: int, value: bytes | None) -> None:
        """The record at offset ``at`` of the map's log. What has the same ``first`` takes the place of what came before
        it; None deletes it."""
        found = Extent(_GONE, _GONE, _GONE, _GONE, "") if value is None else extent(first, value)
        target = self._targets.setdefault(found.target_id, len(self._targets))
        self._found.extend((first, found.end, found.rows, found.target_begin, found.target_end, target, at))

    def newest(self) -> Ranges | None:
        """What counts of all this; None, if there is nothing."""
        found = np.frombuffer(self._found, np.int64, len(self._found)).reshape(-1, _FIELDS)
        found = found[newest_of_each(found[:, 0])]
        found = found[found[:, 1] != _GONE]
        return Ranges(found, list(self._targets)) if len(found) else None


class Ranges:
    """Ranges that are in the map, at least one: rows of (first offset, end, offset behind the last row or -1, the same
    of the first and behind the last row in the target, number of the target's id, place in the map's log), by their
    first offsets.

    ``doubled``: rows were mirrored more than once, as by a mirror that was started from the beginning again, so that
    they are twice in the target. ``holes``: the offsets of which the map has nothing, each between two ranges.
    ``targets``: the ids of the topics that the rows are in, each with the offset behind the last of them.
    ``rowless``: no range has a row.
    """

    def __init__(self, ranges: np.ndarray, targets: Sequence[str]) -> None:
        self._firsts, self._ends, rows, target_begins, target_ends, numbers, self._at = np.ascontiguousarray(ranges.T)
        self.begin, self.end = int(self._firsts[0]), int(self._ends.max())
        self._filled = np.flatnonzero(rows != _GONE)
        self._last_rows, self._numbers = rows[self._filled], numbers[self._filled]
        self.rowless = not len(self._filled)
        same = self._numbers[:-1] == self._numbers[1:]
        # One mirror writes what it reads later behind what it has read before.
        back = same & (target_ends[self._filled][:-1] > target_begins[self._filled][1:])
        self.doubled = bool((self._ends[:-1] > self._firsts[1:]).any() or back.any())
        gaps = np.flatnonzero(self._ends[:-1] < self._firsts[1:])
        self.holes = tuple((int(self._ends[gap]), int(self._firsts[gap + 1])) for gap in gaps)
        self.targets = {targets[n]: int(self._last_rows[self._numbers == n].max()) for n in np.unique(self._numbers)}
        #: The number of filled ranges up to the last one that is not in the same topic as the one behind it.
        self._mixed = int(np.flatnonzero(~same)[-1]) + 1 if not same.all() else 0

    def covers(self, offset: int) -> bool:
        """Whether all that is before this position, and after the first range, has been mirrored up to it, once; and
        what comes behind it to one topic."""
        before = max(0, int(np.searchsorted(self._firsts, offset, "right")) - 1)
        there = bool(self._firsts[before] <= offset <= self._ends[before])
        return there and not self.doubled and self._next(offset) >= self._mixed

    def place(self, offset: int) -> int:
        """The place in the map's log of the entry that says where a reader goes on, by `position_in`, which has read
        everything before this position: one that is covered, where there are rows."""
        return int(self._at[self._filled[self._next(offset)]])

    def _next(self, offset: int) -> int:
        """The number of the first range that has rows from the offset on, or of the last range; 0 without ranges."""
        number = int(np.searchsorted(self._last_rows, offset, "right"))
        return max(0, min(number, len(self._filled) - 1))


def newest_of_each(firsts: np.ndarray) -> np.ndarray:
    """The numbers of the newest record of each key, ascending by key; records are in the order of the log."""
    order = np.argsort(firsts, kind="stable")
    last = np.append(np.diff(firsts[order]) != 0, np.ones(min(1, len(order)), bool))
    newest: np.ndarray = order[last]
    return newest
