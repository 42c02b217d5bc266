"""Reads n datums at once: the same part of each, by positions in one buffer. No I/O.

A ``Cursor`` has n lanes, each with a position in a datum and the datum's end. Each read moves every lane. A lane with
malformed bytes fails: its row is marked in ``Verdicts`` with the first reason, and the lane stays at its end, where it
reads nothing. No lane reads a byte of another lane's datum, so that a bad row does not affect other rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

#: Zero bytes after the last datum, so that words can be read at its end.
PADDING = 16

_U = np.uint64
_TOP_BITS = _U(0x8080_8080_8080_8080)
_ONE, _SEVEN = _U(1), _U(7)
#: Masks and shifts that join the lower seven bits of eight bytes, in pairs, fours, and all.
_JOINED = (
    (_U(0x007F_007F_007F_007F), _U(0x7F00_7F00_7F00_7F00), _U(1)),
    (_U(0x0000_3FFF_0000_3FFF), _U(0x3FFF_0000_3FFF_0000), _U(2)),
    (_U(0x0000_0000_0FFF_FFFF), _U(0x0FFF_FFFF_0000_0000), _U(4)),
)


def _varint_tables() -> tuple[np.ndarray, np.ndarray]:
    """Return the size and the number of each varint of up to two bytes, by these bytes as a little-endian number. Size
    0: it has more bytes, or its second byte is superfluous."""
    pairs = np.arange(1 << 16)
    first, second = pairs & 0xFF, pairs >> 8
    sizes = np.where(first < 0x80, 1, np.where((second < 0x80) & (second > 0), 2, 0))
    zigzag = np.where(first < 0x80, first, first & 0x7F | second << 7)
    return sizes.astype(np.int8), (zigzag >> 1) ^ -(zigzag & 1)


_SIZES, _NUMBERS = _varint_tables()


@dataclass
class Verdicts:
    """Why rows are bad. ``codes``: for each row 0, or the index of its reason in ``reasons`` plus one."""

    codes: np.ndarray
    reasons: list[str] = field(default_factory=list)

    def mark(self, rows: np.ndarray, reason: str) -> None:
        """Mark these rows (int64) as bad, unless they have a reason already."""
        fresh = rows[self.codes[rows] == 0]
        if fresh.size:
            self.reasons.append(reason)
            self.codes[fresh] = len(self.reasons)

    def by_row(self) -> dict[int, str]:
        """Return the reason of each bad row."""
        rows = np.flatnonzero(self.codes)
        numbers = (self.codes[rows] - 1).tolist()
        return {row: self.reasons[number] for row, number in zip(rows.tolist(), numbers, strict=True)}


class DatumBytes:
    """The bytes of datums, followed by PADDING: ``raw`` as uint8, and words of 4 and 8 bytes at every position."""

    def __init__(self, raw: np.ndarray) -> None:
        self.raw = np.empty(len(raw) + PADDING, np.uint8)
        self.raw[: len(raw)] = raw
        self.raw[len(raw) :] = 0
        # Positions are not aligned: a void type can be read at any position.
        self._words = {
            size: np.ndarray((len(raw) + PADDING - size + 1,), f"V{size}", self.raw, strides=(1,)) for size in (4, 8)
        }

    @cached_property
    def bytes(self) -> bytes:
        """``raw`` as bytes, to walk through single datums."""
        return self.raw.tobytes()

    def words(self, at: np.ndarray, type_: str) -> np.ndarray:
        """Return the numbers of this numpy type, of 4 or 8 bytes, at these positions."""
        numbers: np.ndarray = self._words[int(type_[-1])][at].view(type_)
        return numbers

    def pieces(self, at: np.ndarray, size: np.ndarray) -> pa.BinaryArray:
        """Return the bytes at n positions, of these sizes. Arrow takes every second value of a binary array of the
        whole buffer: gap, piece, gap, piece, … A gap may have a negative size after a failed lane; it is never read."""
        count = len(at)
        cuts = np.empty(2 * count + 2, np.int32)
        cuts[0], cuts[-1] = 0, len(self.raw)
        cuts[1:-1:2] = at
        cuts[2:-1:2] = at + size
        buffers = [None, pa.py_buffer(cuts), pa.py_buffer(self.raw)]
        gaps_and_pieces = pa.Array.from_buffers(pa.binary(), 2 * count + 1, buffers)
        return gaps_and_pieces.take(pa.array(np.arange(1, 2 * count, 2)))


class Cursor:
    """n lanes: ``at`` and ``end`` are positions, ``row`` is the row of the datum, each n int64. ``verdicts``: where
    failures are marked, None to mark none. ``failed``: which lanes have failed, n bool, or None if none has."""

    def __init__(
        self, data: DatumBytes, at: np.ndarray, end: np.ndarray, row: np.ndarray, verdicts: Verdicts | None
    ) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.row = row
        self.verdicts = verdicts
        self.failed: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.at)

    def some(self, index: np.ndarray, *, quiet: bool = False) -> Cursor:
        """Return a cursor of the lanes with these numbers. Its reads do not move the lanes here, which `join` does.
        ``quiet``: do not mark rows, to look ahead."""
        verdicts = None if quiet else self.verdicts
        return Cursor(self.data, self.at[index], self.end[index], self.row[index], verdicts)

    def join(self, index: np.ndarray, part: Cursor, *, in_place: bool = False) -> None:
        """Move the lanes with these numbers to the positions of ``part``, which `some` has made of them. ``in_place``:
        no other refers to the positions here, so that a round of few lanes costs no copy of all."""
        if not in_place:
            self.at = self.at.copy()
        self.at[index] = part.at
        if part.failed is not None:
            self.drop(index[part.failed])

    def fail(self, where: np.ndarray, reason: str) -> None:
        """Fail the lanes where this is true (n bool), for this reason."""
        index = np.flatnonzero(where)
        if self.verdicts is not None:
            self.verdicts.mark(self.row[index], reason)
        self.drop(index)

    def drop(self, index: np.ndarray) -> None:
        """Fail the lanes with these numbers, whose rows are marked elsewhere."""
        if self.failed is None:
            self.failed = np.zeros(len(self.at), np.bool_)
        self.failed[index] = True
        self.at = self.at.copy()
        self.at[index] = self.end[index]

    def move(self, behind: np.ndarray, path: str) -> None:
        """Move all lanes to these positions; fail lanes that would pass their end."""
        over = behind > self.end
        self.at = behind
        if over.any():
            self.fail(over, f"{path}: the datum ends too early")

    def fixed(self, size: int, path: str) -> np.ndarray:
        """Read ``size`` bytes of each lane: where they begin, n int64. In a lane that fails: any position up to its
        end."""
        start = self.at
        self.move(start + size, path)
        return start

    def fixed_piece(self, size: int, path: str) -> tuple[np.ndarray, np.ndarray]:
        """Read ``size`` bytes of each lane: where they begin, and their number, 0 where a lane fails (n int64 each)."""
        start = self.fixed(size, path)
        sizes = np.full(len(start), size) if self.failed is None else np.where(self.failed, 0, size)
        return start, sizes

    def long(self, path: str) -> np.ndarray:
        """Read a varint of each lane, n int64; any number where a lane fails."""
        raw, at = self.data.raw, self.at
        first = raw.take(at)
        if first.max(initial=0) < 0x80:
            self.move(at + 1, path)
            return _NUMBERS.take(first)
        pairs = raw.take(at + 1).astype(np.uint16)
        pairs <<= 8
        pairs |= first
        sizes = _SIZES.take(pairs)
        if sizes.min(initial=1) > 0:
            self.move(at + sizes, path)
            return _NUMBERS.take(pairs)
        numbers, behind = _NUMBERS.take(pairs), at + sizes
        long = np.flatnonzero(sizes == 0)
        numbers[long], more, wrong = _long_varints(self.data, at[long])
        behind[long] += more
        mistaken = long[wrong]
        mistaken = mistaken[behind[mistaken] <= self.end[mistaken]]  # else the bytes are another datum's
        if mistaken.size:
            where = np.zeros(len(at), np.bool_)
            where[mistaken] = True
            self.fail(where, f"{path}: a number has more than 64 bits, or more bytes than it needs")
            behind[mistaken] = self.end[mistaken]
        self.move(behind, path)
        return numbers

    def piece(self, path: str) -> tuple[np.ndarray, np.ndarray]:
        """Read a size and that many bytes of each lane: where they begin, and their number, 0 where a lane fails (n
        int64 each)."""
        size = self.long(path)
        start = self.at
        # Compared as unsigned numbers, of which a negative size is a very large one.
        wrong = size.view(_U) > (self.end - start).view(_U)
        if not wrong.any():
            self.at = start + size
            return start, size
        size = np.where(wrong, 0, size)
        self.at = start + size
        self.fail(wrong, f"{path}: a size is negative, or more than what is left of the datum")
        return start, size

    def choice(self, count: int, path: str, what: str) -> np.ndarray:
        """Read a number below ``count`` of each lane, n int64; 0 where a lane fails. ``what``: name of the numbered
        items, for messages."""
        number = self.long(path)
        wrong = number.view(_U) >= _U(count)
        if wrong.any():
            self.fail(wrong, f"{path}: there is no {what} of this number")
            number = np.where(wrong, 0, number)
        return number


class WholeCursor(Cursor):
    """Lanes whose datum is a single value of the type bytes, without a size before it."""

    def piece(self, path: str) -> tuple[np.ndarray, np.ndarray]:
        """Read all bytes of each lane: where they begin, and their number (n int64 each)."""
        start, self.at = self.at, self.end
        return start, self.end - start


def _long_varints(data: DatumBytes, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return varints of two and more bytes: the numbers (int64), their sizes, and which are malformed (bool)."""
    words = data.words(at, "<u8")
    stop = ~words & _TOP_BITS
    stop &= -stop  # the top bit of the last byte; 0 if the varint has more than eight bytes
    words &= stop ^ (stop - _ONE)
    # A last byte of 0 is superfluous after the first byte.
    wrong = (words < stop >> _SEVEN) & (stop != 0)
    size = _sizes(stop)
    bits = words & ~_TOP_BITS
    for low, high, shift in _JOINED:
        bits = (bits & low) | (bits & high) >> shift
    longer = np.flatnonzero(stop == 0)
    if longer.size:
        ninth, tenth = data.raw.take(at[longer] + 8), data.raw.take(at[longer] + 9)
        two = ninth >= 0x80
        bits[longer] |= (ninth & 0x7F).astype(_U) << _U(56) | (two & (tenth & 1 > 0)).astype(_U) << _U(63)
        size[longer] = 9 + two
        wrong[longer] = np.where(two, tenth != 1, ninth == 0)
    return (bits >> _ONE).view(np.int64) ^ -(bits & _ONE).view(np.int64), size, wrong


def _sizes(stop: np.ndarray) -> np.ndarray:
    """Return the number, from 1 on, of the byte whose top bit is set; any number for 0."""
    # A power of two is exact as a float; its exponent is 7, 15, 23, …
    return (np.frexp(stop.astype(np.float64))[1] >> 3).astype(np.int64)
