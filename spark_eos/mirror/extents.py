"""Where the ranges of one partition of the source lie, as the offset map has them: a few bytes for each. No I/O."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from spark_eos.mirror.entries import Extent, extent

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
