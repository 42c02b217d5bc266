"""Reads the arrays and maps of all datums: first finds where each item is, then reads all items at once. No I/O.

An array is a sequence of blocks: the number of items, and the items; a block without items is the last. If the number
is negative, the size of the block in bytes follows it. An item begins where the one before it ends, so that items are
found in rounds, in each round the next item of all arrays that have one. When few arrays are left, they are walked
through one by one, as a round costs as much for one long array as for many. Items of a fixed size are found by
arithmetic.

Then every item is read as a lane of its own, with all checks, and has to end where the next item was found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_eos.pipelines.registry.avro.cursor import Cursor
from spark_eos.pipelines.registry.avro.readers import Boolean, Bundle, Piece, Real, Struct, ValueReader
from spark_eos.pipelines.registry.avro.texts import twice
from spark_eos.pipelines.registry.avro.walk import WRONG, walk_long

#: Fewer arrays than these are walked through one by one: a round costs as much as some dozens of steps.
_FEW = 32


@dataclass(frozen=True)
class List:
    """Reads arrays. ``item``: reads an item; ``least``: the fewest bytes that an item takes, at least 1."""

    path: str
    type: pa.DataType
    item: ValueReader
    least: int

    def read(self, cursor: Cursor) -> pa.Array:
        lane, values = _read_items(self, cursor)
        return pa.Array.from_buffers(self.type, len(cursor), [None, _offsets(lane, len(cursor))], children=[values])

    def skip(self, cursor: Cursor) -> None:
        _find(self, cursor)

    def walk(self, data: bytes, at: int, end: int) -> int:
        items = _Items()
        at, done = _walk_blocks(self, items, data, at, end, 0)
        return at if done else WRONG


@dataclass(frozen=True)
class Pairs(List):
    """Reads maps, which are arrays of keys and values without duplicate keys."""

    item: Struct

    def read(self, cursor: Cursor) -> pa.Array:
        lane, entries = _read_items(self, cursor)
        same = twice(lane, entries.field(0))
        if len(same):
            wrong = np.zeros(len(cursor), np.bool_)
            wrong[same] = True
            cursor.fail(wrong, f"{self.path}: a map has a key twice")
        return pa.Array.from_buffers(self.type, len(cursor), [None, _offsets(lane, len(cursor))], children=[entries])


class _Items:
    """Items that were found: their lanes, begins and ends; the end is WRONG for an item that cannot be read."""

    def __init__(self) -> None:
        self.parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        #: The lanes, begins and ends of items that were found one by one.
        self.single: tuple[list[int], list[int], list[int]] = ([], [], [])

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the lanes, begins and ends of all items, n int64 each, ordered by begins and so by lanes."""
        parts = [*self.parts, tuple(np.array(numbers, np.int64) for numbers in self.single)]
        lane, start, end = (np.concatenate([part[n] for part in parts]) for n in range(3))
        if (np.diff(start) < 0).any():
            order = np.argsort(start, kind="stable")
            lane, start, end = lane[order], start[order], end[order]
        return lane, start, end


def _offsets(lane: np.ndarray, count: int) -> pa.Buffer:
    """Return Arrow's offsets of a list array, by the lane of each item."""
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(lane, minlength=count), out=offsets[1:])
    return pa.py_buffer(offsets)


def _read_items(array: List, cursor: Cursor) -> tuple[np.ndarray, pa.Array]:
    """Return the lane of each item (int64), and the items, in order."""
    lane, start, end = _find(array, cursor).columns()
    items = Cursor(cursor.data, start, cursor.end[lane], cursor.row[lane], cursor.verdicts)
    values = array.item.read(items)
    strange = items.at != end
    if items.failed is not None:
        strange &= ~items.failed
    if strange.any():
        items.fail(strange, f"{array.path}: items do not follow one another")
    if items.failed is not None:
        cursor.drop(lane[items.failed])
    return lane, values


def _find(array: List, cursor: Cursor) -> _Items:
    """Find the items of all lanes, and move the cursor to the ends of the arrays."""
    items = _Items()
    cursor.at = cursor.at.copy()
    going = np.arange(len(cursor))
    first = True
    while going.size:
        if not first and going.size < _FEW:
            going = _walk_arrays(array, items, cursor, going)
        going = _next_blocks(array, items, cursor, going)
        first = False
    return items


def _next_blocks(array: List, items: _Items, cursor: Cursor, going: np.ndarray) -> np.ndarray:
    """Find the items in the next block of these lanes, and return the lanes whose array has another block."""
    path = array.path
    part = cursor.some(going)
    count = part.long(path)
    if part.failed is None and not count.any():  # the end of every array
        cursor.join(going, part, in_place=True)
        return going[:0]
    behind = np.full(len(going), WRONG)
    sized = np.flatnonzero(count < 0)
    if sized.size:
        count = np.abs(count)
        some = part.some(sized)
        size = some.long(path)
        wrong = size.view(np.uint64) > (some.end - some.at).view(np.uint64)
        behind[sized] = some.at + size
        some.fail(wrong, f"{path}: a block claims a size that the rest of the datum does not have")
        part.join(sized, some)
    # Compared as unsigned numbers: the absolute value of the least number of 64 bits is itself.
    wrong = count.view(np.uint64) > ((part.end - part.at) // array.least).view(np.uint64)
    if wrong.any():
        part.fail(wrong, f"{path}: a block claims more items than the rest of the datum has bytes for")
    if part.failed is not None:
        count = np.where(part.failed, 0, count)
    _find_items(array, items, part, count, going)
    strange = (behind != part.at) & (behind != WRONG)
    if strange.any():
        if part.failed is not None:
            strange &= ~part.failed
        part.fail(strange, f"{path}: a block does not end where it says")
    cursor.join(going, part, in_place=True)
    more = count > 0
    return going[more if part.failed is None else more & ~part.failed]


def _find_items(array: List, items: _Items, part: Cursor, count: np.ndarray, lane: np.ndarray) -> None:
    """Find ``count`` items of each lane of ``part``. ``lane``: the numbers of these lanes in ``items``."""
    item = array.item
    if isinstance(item, Real | Bundle | Boolean) or (isinstance(item, Piece) and item.size is not None):
        _find_fixed(items, part, count, lane, array.least)
    else:
        _find_in_rounds(array, items, part, count, lane)


def _find_fixed(items: _Items, part: Cursor, count: np.ndarray, lane: np.ndarray, size: int) -> None:
    """Find ``count`` items of a fixed size; the datums are known to have enough bytes for them."""
    start = np.repeat(part.at, count) + _numbered(count) * size
    items.parts.append((np.repeat(lane, count), start, start + size))
    part.at = part.at + count * size


def _numbered(count: np.ndarray) -> np.ndarray:
    """Return the numbers from 0 to below each count, concatenated."""
    numbers: np.ndarray = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return numbers


def _find_in_rounds(array: List, items: _Items, part: Cursor, count: np.ndarray, lane: np.ndarray) -> None:
    """Find the next item of all lanes that have one, round by round; walk through the last few lanes one by one."""
    going, left = np.flatnonzero(count > 0), count[count > 0]
    part.at = part.at.copy()
    while going.size >= _FEW:
        some = part.some(going, quiet=True)
        start = some.at
        array.item.skip(some)
        end = some.at if some.failed is None else np.where(some.failed, WRONG, some.at)
        items.parts.append((lane[going], start, end))
        part.join(going, some, in_place=True)
        left = left - 1
        more = (left > 0) & (end >= 0)
        going, left = going[more], left[more]
    if not going.size:
        return
    at, failed = part.at, []
    data = part.data.bytes
    for one, n in zip(going.tolist(), left.tolist(), strict=True):
        position = _walk_items(array.item, items, data, int(at[one]), int(part.end[one]), int(lane[one]), n)
        if position < 0:
            failed.append(one)
        else:
            at[one] = position
    if failed:
        part.drop(np.array(failed))


def _walk_items(item: ValueReader, items: _Items, data: bytes, at: int, end: int, lane: int, count: int) -> int:
    """Find ``count`` items in ``data[at:end]``, and return the position behind them; WRONG if one cannot be read, which
    is the last one in ``items``."""
    lanes, starts, ends = items.single
    for _ in range(count):
        starts.append(at)
        at = item.walk(data, at, end)
        lanes.append(lane)
        ends.append(at)
        if at < 0:
            break
    return at


def _walk_arrays(array: List, items: _Items, cursor: Cursor, going: np.ndarray) -> np.ndarray:
    """Walk through the arrays of these lanes one by one, and return the lanes with a malformed block. The cursor is
    before that block, so that `_next_blocks` reports the reason."""
    at, failed, strange = cursor.at.copy(), [], []
    for lane in going.tolist():
        position, done = _walk_blocks(array, items, cursor.data.bytes, int(at[lane]), int(cursor.end[lane]), lane)
        if position < 0:
            failed.append(lane)
        else:
            at[lane] = position
            if not done:
                strange.append(lane)
    cursor.at = at
    if failed:
        cursor.drop(np.array(failed))
    return np.array(strange, np.int64)


def _walk_blocks(array: List, items: _Items, data: bytes, at: int, end: int, lane: int) -> tuple[int, bool]:
    """Walk through the remaining blocks of an array in ``data[at:end]``.

    Returns the position behind the array, and True; WRONG and False if an item cannot be read; the position before a
    malformed block, and False.
    """
    while True:
        count, start = walk_long(data, at, end)
        behind = WRONG
        if start >= 0 and count < 0:
            size, start = walk_long(data, start, end)
            behind, count = start + size, -count
            if start < 0 or not 0 <= size <= end - start:
                return at, False
        if start < 0 or count > (end - start) // array.least:
            return at, False
        if count == 0:
            return start, True
        position = _walk_items(array.item, items, data, start, end, lane, count)
        if position < 0:
            return WRONG, False
        if behind not in (WRONG, position):
            for numbers in items.single:
                del numbers[-count:]
            return at, False
        at = position
