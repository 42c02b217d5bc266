"""Reading the arrays and maps of all datums: first where each item lies, then all items at once. No I/O.

An array is a row of blocks, each a number of items and then the items; a block of no items ends it. A negative number
stands for as many items, behind which the size of the block is given, in bytes. Where an item ends, the next begins, so
they are found in rounds, one item of each array that goes on; the last few arrays are gone through one by one, so that
a long one costs what its bytes cost. Items of a fixed size need neither.

Then every item is read as a lane of its own, with all checks, and has to end where the next one was found to begin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_eos.registry.avro.cursor import Cursor
from spark_eos.registry.avro.readers import Boolean, Bundle, Piece, Reader, Real, Struct
from spark_eos.registry.avro.texts import twice
from spark_eos.registry.avro.walk import WRONG, walk_long

#: Fewer arrays than these are gone through one by one: a round costs as much as some dozens of such steps.
_FEW = 32


@dataclass(frozen=True)
class List:
    """An array of what ``item`` reads. ``least``: the fewest bytes that an item takes, 1 or more."""

    path: str
    type: pa.DataType
    item: Reader
    least: int

    def read(self, cursor: Cursor) -> pa.Array:
        lane, values = _read_items(self, cursor)
        return pa.Array.from_buffers(self.type, len(cursor), [None, _offsets(lane, len(cursor))], children=[values])

    def skip(self, cursor: Cursor) -> None:
        _find(self, cursor)

    def walk(self, data: bytes, at: int, end: int) -> int:
        found = _Found()
        at, done = _walk_blocks(self, found, data, at, end, 0)
        return at if done else WRONG


@dataclass(frozen=True)
class Pairs(List):
    """A map: an array of keys and values, in which no key is there twice."""

    item: Struct

    def read(self, cursor: Cursor) -> pa.Array:
        lane, entries = _read_items(self, cursor)
        same = twice(lane, entries.field(0))
        if len(same):
            wrong = np.zeros(len(cursor), np.bool_)
            wrong[same] = True
            cursor.fail(wrong, f"{self.path}: a map has a key twice")
        return pa.Array.from_buffers(self.type, len(cursor), [None, _offsets(lane, len(cursor))], children=[entries])


class _Found:
    """The lanes of items, where these begin, and where they end; WRONG for an item that cannot be read."""

    def __init__(self) -> None:
        self.parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        #: The lanes, begins and ends of items that were found one by one.
        self.single: tuple[list[int], list[int], list[int]] = ([], [], [])

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All of them, n int64 each, in the order of lanes and then of their bytes."""
        parts = [*self.parts, tuple(np.array(numbers, np.int64) for numbers in self.single)]
        lane, start, end = (np.concatenate([part[n] for part in parts]) for n in range(3))
        if (np.diff(start) < 0).any():  # lanes lie in their order, too
            order = np.argsort(start, kind="stable")
            lane, start, end = lane[order], start[order], end[order]
        return lane, start, end


def _offsets(lane: np.ndarray, count: int) -> pa.Buffer:
    """Where the items of each lane begin, as Arrow has it."""
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(lane, minlength=count), out=offsets[1:])
    return pa.py_buffer(offsets)


def _read_items(array: List, cursor: Cursor) -> tuple[np.ndarray, pa.Array]:
    """The items of all lanes, in their order, and the lane of each (int64)."""
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


def _find(array: List, cursor: Cursor) -> _Found:
    """Where the items of all lanes lie; moves the cursor behind the arrays."""
    found = _Found()
    going = np.arange(len(cursor))
    first = True
    while going.size:
        if not first and going.size < _FEW:
            going = _walk_arrays(array, found, cursor, going)
        going = _next_blocks(array, found, cursor, going)
        first = False
    return found


def _next_blocks(array: List, found: _Found, cursor: Cursor, going: np.ndarray) -> np.ndarray:
    """Goes through a block of each of these lanes, and returns those whose array goes on."""
    path = array.path
    part = cursor.some(going)
    count = part.long(path)
    if part.failed is None and not count.any():  # as behind the only block of each
        cursor.join(going, part)
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
    # As unsigned numbers, so that the least of all, which has no positive one, is too large.
    wrong = count.view(np.uint64) > ((part.end - part.at) // array.least).view(np.uint64)
    if wrong.any():
        part.fail(wrong, f"{path}: a block claims more items than the rest of the datum has bytes for")
    if part.failed is not None:
        count = np.where(part.failed, 0, count)
    _find_items(array, found, part, count, going)
    strange = (behind != part.at) & (behind != WRONG)
    if strange.any():
        if part.failed is not None:
            strange &= ~part.failed
        part.fail(strange, f"{path}: a block does not end where it says")
    cursor.join(going, part)
    more = count > 0
    return going[more if part.failed is None else more & ~part.failed]


def _find_items(array: List, found: _Found, part: Cursor, count: np.ndarray, lane: np.ndarray) -> None:
    """Goes through ``count`` items of each lane; ``lane``: their numbers in what was found."""
    item = array.item
    if isinstance(item, Real | Bundle | Boolean) or (isinstance(item, Piece) and item.size is not None):
        _find_fixed(found, part, count, lane, array.least)
    else:
        _find_in_rounds(array, found, part, count, lane)


def _find_fixed(found: _Found, part: Cursor, count: np.ndarray, lane: np.ndarray, size: int) -> None:
    """Items of this size: there are bytes for all that are claimed."""
    start = np.repeat(part.at, count) + _numbered(count) * size
    found.parts.append((np.repeat(lane, count), start, start + size))
    part.at = part.at + count * size


def _numbered(count: np.ndarray) -> np.ndarray:
    """0, 1, … below each of these counts, one after the other."""
    numbers: np.ndarray = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return numbers


def _find_in_rounds(array: List, found: _Found, part: Cursor, count: np.ndarray, lane: np.ndarray) -> None:
    """An item of each lane that has one, then the next, and the items of the last few lanes one by one."""
    going, left = np.flatnonzero(count > 0), count[count > 0]
    while going.size >= _FEW:
        some = part.some(going, quiet=True)
        start = some.at
        array.item.skip(some)
        end = some.at if some.failed is None else np.where(some.failed, WRONG, some.at)
        found.parts.append((lane[going], start, end))
        part.join(going, some)
        left = left - 1
        more = (left > 0) & (end >= 0)
        going, left = going[more], left[more]
    if not going.size:
        return
    at, failed = part.at.copy(), []
    data = part.data.bytes
    for one, n in zip(going.tolist(), left.tolist(), strict=True):
        position = _walk_items(array.item, found, data, int(at[one]), int(part.end[one]), int(lane[one]), n)
        if position < 0:
            failed.append(one)
        else:
            at[one] = position
    part.at = at
    if failed:
        part.drop(np.array(failed))


def _walk_items(item: Reader, found: _Found, data: bytes, at: int, end: int, lane: int, count: int) -> int:
    """The position behind so many items in ``data[at:end]``; WRONG if one cannot be read, which is the last found."""
    lanes, starts, ends = found.single
    for _ in range(count):
        starts.append(at)
        at = item.walk(data, at, end)
        lanes.append(lane)
        ends.append(at)
        if at < 0:
            break
    return at


def _walk_arrays(array: List, found: _Found, cursor: Cursor, going: np.ndarray) -> np.ndarray:
    """Goes through the blocks of each of these lanes, one after the other, and returns the lanes whose next block is
    strange: then the cursor stands before it, and `_next_blocks` says what is wrong."""
    at, failed, strange = cursor.at.copy(), [], []
    for lane in going.tolist():
        position, done = _walk_blocks(array, found, cursor.data.bytes, int(at[lane]), int(cursor.end[lane]), lane)
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


def _walk_blocks(array: List, found: _Found, data: bytes, at: int, end: int, lane: int) -> tuple[int, bool]:
    """The position behind the array that goes on in ``data[at:end]``, and True. WRONG, and False, if an item cannot be
    read; the position before a strange block, and False, where there is one."""
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
        position = _walk_items(array.item, found, data, start, end, lane, count)
        if position < 0:
            return WRONG, False
        if behind not in (WRONG, position):
            for numbers in found.single:
                del numbers[-count:]
            return at, False
        at = position
