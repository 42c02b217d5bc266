"""Entries of the offset map, from offsets of the source to offsets of the target. No I/O.

There is one record for each range that a task has copied, written in the task's own transaction: so it is visible if
and only if the rows are. Its key is the range in the source, so that the record of a repair replaces the lost one. A
range without rows has a record, too: it shows readers that no entry is missing.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Runs in one record. A range with more has several records, so that none is too large for a topic.
MAX_RUNS = 5_000

#: Partitions of the map's topic that have entries, where it has more partitions: mirrors create it with one more.
ENTRY_PARTITIONS = 8

_FIRST = b',"first":'
_GONE = -1
_FIELDS = 7

#: (first offset, number) of offsets without a gap.
Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class SourcePartition:
    """A partition of a topic of a cluster, both by their ids."""

    cluster: str
    topic_id: str
    partition: int


@dataclass(frozen=True)
class OffsetRun:
    """``count`` rows whose offsets have no gap on either side: from ``source`` on in the source, and from ``target`` on
    in the target."""

    source: int
    target: int
    count: int


@dataclass(frozen=True)
class MapEntry:
    """Offsets ``first`` to ``end``, exclusive, of a source. Offsets of rows are in ``runs``, in ascending order.

    ``topic``: the source topic's name; ``target``, ``target_id``: name and id of the target topic, whose partition has
    the same number.
    """

    source: SourcePartition
    topic: str
    first: int
    end: int
    target: str
    target_id: str
    runs: tuple[OffsetRun, ...]


def runs_of(source: Spans, target: Spans) -> tuple[OffsetRun, ...]:
    """Return the runs of rows with these offsets, in the same order on both sides. Raises ValueError unless both sides
    have equally many."""
    runs: list[OffsetRun] = []
    source_left, target_left = list(source)[::-1], list(target)[::-1]
    while source_left and target_left:
        (at, rows), (there, room) = source_left.pop(), target_left.pop()
        count = min(rows, room)
        last = runs[-1] if runs else OffsetRun(at, there, 0)
        if (last.source + last.count, last.target + last.count) == (at, there):
            runs[-1:] = [OffsetRun(last.source, last.target, last.count + count)]
        else:
            runs.append(OffsetRun(at, there, count))
        if rows > count:
            source_left.append((at + count, rows - count))
        if room > count:
            target_left.append((there + count, room - count))
    if source_left or target_left:
        raise ValueError("not as many rows in the target as in the source")
    return tuple(runs)


def split(entry: MapEntry) -> Iterator[MapEntry]:
    """Yield the entry, as several that are not too large if need be."""
    starts = [entry.first, *(run.source for run in entry.runs[MAX_RUNS::MAX_RUNS])]
    for number, (first, end) in enumerate(zip(starts, [*starts[1:], entry.end], strict=True)):
        runs = entry.runs[number * MAX_RUNS : (number + 1) * MAX_RUNS]
        yield MapEntry(entry.source, entry.topic, first, end, entry.target, entry.target_id, runs)


def to_record(entry: MapEntry) -> tuple[bytes, bytes]:
    """Return key and value, as JSON. Runs are written as the distances from the end of the run before."""
    runs, at, there = [], entry.first, 0
    for run in entry.runs:
        runs.append([run.source - at, run.target - there, run.count])
        at, there = run.source + run.count, run.target + run.count
    value = {"topic": entry.topic, "end": entry.end, "target": entry.target, "id": entry.target_id, "runs": runs}
    return key_of(prefix_of(entry.source), entry.first), _text(value)


def from_record(key: bytes, value: bytes) -> MapEntry | None:
    """Parse the result of `to_record`; None for any other record."""
    range_: dict[str, Any] = json.loads(key)
    if "first" not in range_:
        return None
    fields = json.loads(value)
    runs, at, there = [], range_["first"], 0
    for gap, jump, count in fields["runs"]:
        runs.append(OffsetRun(at + gap, there + jump, count))
        at, there = at + gap + count, there + jump + count
    source = SourcePartition(range_["cluster"], range_["topic"], range_["partition"])
    return MapEntry(
        source, fields["topic"], range_["first"], fields["end"], fields["target"], fields["id"], tuple(runs)
    )


def prefix_of(source: SourcePartition) -> bytes:
    """Return the prefix of the keys of all entries of a partition of the source, and of no other partition's."""
    return _text({"cluster": source.cluster, "topic": source.topic_id, "partition": source.partition})[:-1]


def key_of(prefix: bytes, first: int) -> bytes:
    """Return the key of the entry whose range begins at ``first``; ``prefix`` as from `prefix_of`."""
    return b"%b%b%d}" % (prefix, _FIRST, first)


def split_key(key: bytes | None) -> tuple[bytes, int] | None:
    """Parse the result of `key_of`; None for a record that is no entry."""
    prefix, separator, first = (key or b"").rpartition(_FIRST)
    return (prefix, int(first[:-1])) if separator else None


def has_rows(value: bytes) -> bool:
    """Return whether an entry has rows, by its value as `to_record` writes it."""
    return not value.endswith(b'"runs":[]}')


def partition_of(source: SourcePartition, count: int) -> int:
    """Return the partition of a map's topic with ``count`` partitions that has the entries of a source. The first one
    is for records about whole topics, which can be read there without the entries. Entries stay where they are when the
    topic gets more partitions than mirrors give it."""
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
    """Return the position in the target of a reader that has read all before ``offset``, by an entry with rows: the
    first row that is not before it or, if all are, after the last one."""
    there = entry.runs[0].target
    for run in entry.runs:
        there = run.target + min(max(0, offset - run.source), run.count)
        if offset < run.source + run.count:
            break
    return TargetPosition(entry.target, entry.target_id, entry.source.partition, there)


def _text(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Extent:
    """Index of an entry: the ``end`` of its range; the offset after its last row in the source
    (``rows_end``); the offsets of its first row and after its last one in the target, and the target's id. The offsets
    of rows are -1 if it has none."""

    end: int
    rows_end: int
    target_begin: int
    target_end: int
    target_id: str


def extent(first: int, value: bytes) -> Extent:
    """Return the extent of the entry whose range begins at ``first``, without decoding the rest of it."""
    fields = json.loads(value)
    runs = fields["runs"]
    if not runs:
        return Extent(fields["end"], -1, -1, -1, fields["id"])
    rows_end = first + sum(gap + count for gap, _, count in runs)
    return Extent(fields["end"], rows_end, runs[0][1], sum(jump + count for _, jump, count in runs), fields["id"])


class Extents:
    """The extents of the entries for one partition of the source, in the order of the map's log: 56 bytes each."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._targets: dict[str, int] = {}

    def add(self, at: int, first: int, value: bytes | None) -> None:
        """Add the record at offset ``at`` of the map's log. It replaces earlier ones with the same ``first``; without a
        value, it deletes them."""
        entry = Extent(_GONE, _GONE, _GONE, _GONE, "") if value is None else extent(first, value)
        target = self._targets.setdefault(entry.target_id, len(self._targets))
        self._numbers.extend((first, entry.end, entry.rows_end, entry.target_begin, entry.target_end, target, at))

    def newest(self) -> Ranges | None:
        """Return the contents of the map after all these records; None if it is empty."""
        rows = np.frombuffer(self._numbers, np.int64, len(self._numbers)).reshape(-1, _FIELDS)
        rows = rows[newest_of_each(rows[:, 0])]
        rows = rows[rows[:, 1] != _GONE]
        return Ranges(rows, list(self._targets)) if len(rows) else None


class Ranges:
    """The ranges of one partition that are in the map, at least one, by their first offsets. A row of ``ranges`` has:
    first offset, end, offset after the last row or -1, offsets of the first row and after the last one in the target,
    number of the target's id, offset in the map's log.

    ``doubled``: rows were mirrored more than once, as by a mirror that started from the beginning again, so that they
    are in the target twice. Ranges may overlap where they have no rows: a mirror may begin anywhere behind the last
    row. ``holes``: offsets of which the map has nothing, each between two ranges. ``targets``: the
    ids of the topics that have the rows, each with the offset after the last of them in the source. ``rowless``: no
    range has a row.
    """

    def __init__(self, ranges: np.ndarray, targets: Sequence[str]) -> None:
        self._firsts, ends, rows, target_begins, target_ends, numbers, self._at = np.ascontiguousarray(ranges.T)
        #: How far this range reaches, or an earlier one.
        self._ends = np.maximum.accumulate(ends)
        self.begin, self.end = int(self._firsts[0]), int(self._ends[-1])
        self._filled = np.flatnonzero(rows != _GONE)
        self._last_rows, self._numbers = rows[self._filled], numbers[self._filled]
        self.rowless = not len(self._filled)
        same = self._numbers[:-1] == self._numbers[1:]
        # One mirror writes rows in the order in which it reads them.
        back = same & (target_ends[self._filled][:-1] > target_begins[self._filled][1:])
        again = self._last_rows[:-1] > self._firsts[self._filled][1:]
        self.doubled = bool(again.any() or back.any())
        gaps = np.flatnonzero(self._ends[:-1] < self._firsts[1:])
        self.holes = tuple((int(self._ends[gap]), int(self._firsts[gap + 1])) for gap in gaps)
        self.targets = {targets[n]: int(self._last_rows[self._numbers == n].max()) for n in np.unique(self._numbers)}
        #: The number of filled ranges up to the last one whose successor is in another topic.
        self._mixed = int(np.flatnonzero(~same)[-1]) + 1 if not same.all() else 0

    def covers(self, offset: int) -> bool:
        """Return whether the position lies in a range or at its end, no row was mirrored twice, and all rows from the
        position on went to one topic."""
        before = max(0, int(np.searchsorted(self._firsts, offset, "right")) - 1)
        there = bool(self._firsts[before] <= offset <= self._ends[before])
        return there and not self.doubled and self._next(offset) >= self._mixed

    def entry_at(self, offset: int) -> int:
        """Return the offset in the map's log of the entry by which `position_in` translates this offset: one that is
        covered, in a partition with rows."""
        return int(self._at[self._filled[self._next(offset)]])

    def _next(self, offset: int) -> int:
        """Return the number of the first filled range with rows from the offset on, or of the last one; 0 if there is
        none."""
        number = int(np.searchsorted(self._last_rows, offset, "right"))
        return max(0, min(number, len(self._filled) - 1))


def newest_of_each(firsts: np.ndarray) -> np.ndarray:
    """Return the indexes of the newest record of each key, ascending by key; records are in the order of the log."""
    order = np.argsort(firsts, kind="stable")
    last = np.append(np.diff(firsts[order]) != 0, np.ones(min(1, len(order)), bool))
    newest: np.ndarray = order[last]
    return newest
