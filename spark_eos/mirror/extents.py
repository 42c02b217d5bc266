"""Where the ranges of one partition of the source lie, as the offset map has them: a few bytes for each. No I/O."""

from __future__ import annotations

from array import array
from collections.abc import Collection

import numpy as np

from spark_eos.mirror.entries import extent

_GONE = -1
_FIELDS = 5


class Extents:
    """Of one partition of the source, the entries of the map in the order of the map's log: 40 bytes for each."""

    def __init__(self) -> None:
        self._found = array("q")
        self._targets: dict[str, int] = {}

    def add(self, at: int, first: int, value: bytes | None) -> None:
        """The record at offset ``at`` of the map's log. What has the same ``first`` takes the place of what came before
        it; None deletes it."""
        end, rows, target = (_GONE, _GONE, "") if value is None else extent(first, value)
        self._found.extend((first, end, rows, at, self._targets.setdefault(target, len(self._targets))))

    def newest(self) -> Ranges | None:
        """What counts of all this; None, if there is nothing."""
        found = np.frombuffer(self._found, np.int64, len(self._found)).reshape(-1, _FIELDS)
        found = found[newest_of_each(found[:, 0])]
        found = found[found[:, 1] != _GONE]
        ids = list(self._targets)
        return Ranges(found[:, :-1], {ids[number] for number in np.unique(found[:, -1])}) if len(found) else None


class Ranges:
    """Ranges that are in the map, at least one: rows of (first offset, end, offset behind the last row or -1, place in
    the map's log), by their first offsets.

    ``doubled``: rows were mirrored more than once, as by a mirror that was started from the beginning again, so that
    they are twice in the target. ``hole``: the first offsets of which the map has nothing, between two ranges.
    ``targets``: the ids of the topics that the rows are in.
    """

    def __init__(self, ranges: np.ndarray, targets: Collection[str]) -> None:
        self._firsts, self._ends, rows, self._at = np.ascontiguousarray(ranges.T)
        self.begin, self.end = int(self._firsts[0]), int(self._ends.max())
        self.doubled = bool((self._ends[:-1] > self._firsts[1:]).any())
        gaps = np.flatnonzero(self._ends[:-1] < self._firsts[1:])
        self.hole = (int(self._ends[gaps[0]]), int(self._firsts[gaps[0] + 1])) if len(gaps) else None
        self.targets = frozenset(targets)
        self._filled = np.flatnonzero(rows != _GONE)
        self._last_rows = rows[self._filled]

    def covers(self, offset: int) -> bool:
        """Whether all that is before this position, and after the first range, has been mirrored up to it, once."""
        before = max(0, int(np.searchsorted(self._firsts, offset, "right")) - 1)
        return not self.doubled and bool(self._firsts[before] <= offset <= self._ends[before])

    def place(self, offset: int) -> int:
        """The place in the map's log of the entry that says where a reader goes on, by `position_in`, which has read
        everything before this position: one that is covered."""
        if not len(self._filled):
            return int(self._at[-1])
        number = int(np.searchsorted(self._last_rows, offset, "right"))
        return int(self._at[self._filled[min(number, len(self._filled) - 1)]])


def newest_of_each(firsts: np.ndarray) -> np.ndarray:
    """Of records by their keys, in the order of the log, the numbers of those that count, ascending by key."""
    order = np.argsort(firsts, kind="stable")
    last = np.append(np.diff(firsts[order]) != 0, np.ones(min(1, len(order)), bool))
    newest: np.ndarray = order[last]
    return newest
