"""Reading n datums at once: the same part of each, by positions in one buffer. No I/O.

A ``Cursor`` has n lanes, each at a position in a datum that ends somewhere. What is read moves every lane. A lane
that finds something wrong fails: its row is marked in ``Verdicts`` with the first reason, and from then on the lane
stands at its end, where it reads nothing. No value has a byte of another lane's datum, so a bad row touches no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

#: Zeros behind the last datum, so that words can be read at its end.
PADDING = 16

_U = np.uint64
_TOP_BITS = _U(0x8080_8080_8080_8080)
_ONE, _SEVEN = _U(1), _U(7)
#: Takes the seven bits out of the bytes of a word: each step joins neighbours of its width, in bytes.
_JOINED = (
    (_U(0x007F_007F_007F_007F), _U(0x7F00_7F00_7F00_7F00), _U(1)),
    (_U(0x0000_3FFF_0000_3FFF), _U(0x3FFF_0000_3FFF_0000), _U(2)),
    (_U(0x0000_0000_0FFF_FFFF), _U(0x0FFF_FFFF_0000_0000), _U(4)),
)


def _varint_tables() -> tuple[np.ndarray, np.ndarray]:
    """Size and number by the first two bytes of a varint, the first one being the lower; size 0 where it has more, or
    has a second byte that it does not need."""
    pairs = np.arange(1 << 16)
    first, second = pairs & 0xFF, pairs >> 8
    sizes = np.where(first < 0x80, 1, np.where((second < 0x80) & (second > 0), 2, 0))
    zigzag = np.where(first < 0x80, first, first & 0x7F | second << 7)
    return sizes.astype(np.int8), (zigzag >> 1) ^ -(zigzag & 1)


_SIZES, _NUMBERS = _varint_tables()


@dataclass
class Verdicts:
    """Why rows are bad: ``codes`` has a number for each row, 0 for none, else one more than a place in ``reasons``."""

    codes: np.ndarray
    reasons: list[str] = field(default_factory=list)

    def mark(self, rows: np.ndarray, reason: str) -> None:
        """These rows (int64) are bad, if they are not yet."""
        fresh = rows[self.codes[rows] == 0]
        if fresh.size:
            self.reasons.append(reason)
            self.codes[fresh] = len(self.reasons)

    def by_row(self) -> dict[int, str]:
        """The reason of each bad row."""
        rows = np.flatnonzero(self.codes)
        numbers = (self.codes[rows] - 1).tolist()
        return {row: self.reasons[number] for row, number in zip(rows.tolist(), numbers, strict=True)}


class Data:
    """Bytes of datums with PADDING behind them: ``raw`` as uint8, and as words of 4 and 8 bytes at every position."""

    def __init__(self, raw: np.ndarray) -> None:
        self.raw = np.empty(len(raw) + PADDING, np.uint8)
        self.raw[: len(raw)] = raw
        self.raw[len(raw) :] = 0
        # Void types are copied as they lie; the lanes' positions are not aligned for numbers.
        self._words = {
            size: np.ndarray((len(raw) + PADDING - size + 1,), f"V{size}", self.raw, strides=(1,)) for size in (4, 8)
        }

    @cached_property
    def bytes(self) -> bytes:
        """``raw`` as bytes, for steps through single datums."""
        return self.raw.tobytes()

    def words(self, at: np.ndarray, type_: str) -> np.ndarray:
        """The numbers of this numpy type, of 4 or 8 bytes, at these positions."""
        numbers: np.ndarray = self._words[int(type_[-1])][at].view(type_)
        return numbers

    def pieces(self, at: np.ndarray, size: np.ndarray) -> pa.BinaryArray:
        """The bytes at n positions, of these sizes. The buffer is seen as gap, piece, gap, piece, … and Arrow takes the
        pieces out. A gap may go backwards, from a lane that has failed: nobody looks at it."""
        count = len(at)
        cuts = np.empty(2 * count + 2, np.int32)
        cuts[0], cuts[-1] = 0, len(self.raw)
        cuts[1:-1:2] = at
        cuts[2:-1:2] = at + size
        buffers = [None, pa.py_buffer(cuts), pa.py_buffer(self.raw)]
        gaps_and_pieces = pa.Array.from_buffers(pa.binary(), 2 * count + 1, buffers)
        return gaps_and_pieces.take(pa.array(np.arange(1, 2 * count, 2)))


class Cursor:
    """n lanes: ``at``, ``end`` (positions) and ``row`` (whose datum it is), each n int64. ``verdicts``: where failures
    are marked; None while only positions are looked for. ``failed``: n bool, or None while none has."""

    def __init__(self, data: Data, at: np.ndarray, end: np.ndarray, row: np.ndarray, verdicts: Verdicts | None) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.row = row
        self.verdicts = verdicts
        self.failed: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.at)

    def some(self, index: np.ndarray, *, quiet: bool = False) -> Cursor:
        """The lanes of these numbers. What they read moves only themselves, until `join` moves these, too. ``quiet``:
        to look ahead, without marking rows."""
        verdicts = None if quiet else self.verdicts
        return Cursor(self.data, self.at[index], self.end[index], self.row[index], verdicts)

    def join(self, index: np.ndarray, part: Cursor) -> None:
        """Moves the lanes of these numbers to where those of `some` are."""
        self.at = self.at.copy()  # others may hold it
        self.at[index] = part.at
        if part.failed is not None:
            self.drop(index[part.failed])

    def fail(self, where: np.ndarray, reason: str) -> None:
        """The lanes where this is true (n bool) cannot be read, for this reason."""
        index = np.flatnonzero(where)
        if self.verdicts is not None:
            self.verdicts.mark(self.row[index], reason)
        self.drop(index)

    def drop(self, index: np.ndarray) -> None:
        """The lanes of these numbers fail; their rows are marked elsewhere."""
        if self.failed is None:
            self.failed = np.zeros(len(self.at), np.bool_)
        self.failed[index] = True
        self.at = self.at.copy()
        self.at[index] = self.end[index]

    def move(self, behind: np.ndarray, path: str) -> None:
        """All lanes go on at these positions, those fail that would be behind their end."""
        over = behind > self.end
        self.at = behind
        if over.any():
            self.fail(over, f"{path}: the datum ends too early")

    def fixed(self, size: int, path: str) -> np.ndarray:
        """Where the next ``size`` bytes of each lane begin, n int64; in a lane that fails, somewhere up to its end."""
        start = self.at
        self.move(start + size, path)
        return start

    def fixed_piece(self, size: int, path: str) -> tuple[np.ndarray, np.ndarray]:
        """Where ``size`` bytes begin, and how many there are (n int64 each): none where a lane fails."""
        start = self.fixed(size, path)
        sizes = np.full(len(start), size) if self.failed is None else np.where(self.failed, 0, size)
        return start, sizes

    def long(self, path: str) -> np.ndarray:
        """A number of each lane, n int64; of a lane that fails, any."""
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
        mistaken = mistaken[behind[mistaken] <= self.end[mistaken]]  # else the bytes are those of another datum
        if mistaken.size:
            where = np.zeros(len(at), np.bool_)
            where[mistaken] = True
            self.fail(where, f"{path}: a number has more than 64 bits, or more bytes than it needs")
            behind[mistaken] = self.end[mistaken]
        self.move(behind, path)
        return numbers

    def piece(self, path: str) -> tuple[np.ndarray, np.ndarray]:
        """Bytes behind their size: where they begin, and how many (n int64 each; none where a lane fails)."""
        size = self.long(path)
        start = self.at
        # As unsigned numbers, so that a negative size is larger than what is left, which is never negative.
        wrong = size.view(_U) > (self.end - start).view(_U)
        if not wrong.any():
            self.at = start + size
            return start, size
        size = np.where(wrong, 0, size)
        self.at = start + size
        self.fail(wrong, f"{path}: a size is negative, or more than what is left of the datum")
        return start, size

    def choice(self, count: int, path: str, what: str) -> np.ndarray:
        """A number from 0 to below ``count``, n int64; 0 where a lane fails. ``what``: what it numbers."""
        number = self.long(path)
        wrong = number.view(_U) >= _U(count)
        if wrong.any():
            self.fail(wrong, f"{path}: there is no {what} of this number")
            number = np.where(wrong, 0, number)
        return number


def _long_varints(data: Data, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of two and more bytes: themselves (int64), their sizes, and which of them are none (bool)."""
    words = data.words(at, "<u8")
    stop = ~words & _TOP_BITS
    stop &= -stop  # the top bit of the last byte, or 0 if that is not among these
    words &= stop ^ (stop - _ONE)
    # Behind the first byte, a last byte of 0 adds nothing.
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
    """The number of the byte whose top bit is set, from 1 on; any for 0."""
    # A power of two is exact as a float; its exponent is 7, 15, 23, …
    return (np.frexp(stop.astype(np.float64))[1] >> 3).astype(np.int64)
