"""Parts of n datums, joined row by row. No I/O.

A ``Part`` is either ``Cells``, up to a few bytes of each datum, or a binary column, in which null means no bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_U = np.uint64
_TOP_BITS = _U(0x8080_8080_8080_8080)
_ONE, _WORD_BYTES = _U(1), 8
#: Bits of a number whose varint fits into one word, and bytes of the longest varint.
_WORD_BITS, _LONGEST = 56, 10
#: Masks and shifts (in bits) that spread 56 bits over the lower seven bits of eight bytes, in halves.
_PARTED = (
    (_U(0x0000_0000_0FFF_FFFF), _U(0x00FF_FFFF_F000_0000), _U(4)),
    (_U(0x0000_3FFF_0000_3FFF), _U(0x0FFF_C000_0FFF_C000), _U(2)),
    (_U(0x007F_007F_007F_007F), _U(0x3F80_3F80_3F80_3F80), _U(1)),
)


@dataclass(frozen=True)
class Cells:
    """Bytes of n rows in a matrix. ``data``: uint8 of shape (n, width). ``size``: how many bytes of each row are used,
    n int64, or None for all: the first bytes, or with ``at_end`` the last."""

    data: np.ndarray
    size: np.ndarray | None = None
    at_end: bool = False

    def where(self, live: np.ndarray | None) -> Cells:
        """Return the cells, with no bytes in rows where ``live`` (n bool) is false; None: all are live."""
        if live is None:
            return self
        size = live * self.data.shape[1] if self.size is None else np.where(live, self.size, 0)
        return Cells(self.data, size, self.at_end)


Part: TypeAlias = Cells | pa.Array


def constant(data: bytes, count: int) -> Cells:
    """Repeat the bytes in each of n rows."""
    return Cells(np.broadcast_to(np.frombuffer(data, np.uint8), (count, len(data))))


def plain(numbers: np.ndarray) -> Cells:
    """Return the bytes of n numbers as they are in memory."""
    return Cells(np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), numbers.dtype.itemsize))


def varints(numbers: np.ndarray) -> Cells:
    """n numbers (int64) as varints."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(_U)
    largest = int(zigzag.max(initial=0))
    if largest < 0x80:
        return Cells(zigzag.astype(np.uint8)[:, np.newaxis])
    words = zigzag
    for low, high, shift in _PARTED:
        words = (words & low) | (words & high) << shift
    # The exponent of a float is the number of its highest bit. No word is rounded up to the next power of two, as no
    # byte has its top bit set.
    size = np.maximum(np.frexp(words.astype(np.float64))[1] + 7 >> 3, 1).astype(np.int64)
    words |= _TOP_BITS & ((_ONE << (8 * (size - 1)).astype(_U)) - _ONE)
    data = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, _WORD_BYTES)
    widest = int(size.max())
    if largest >> _WORD_BITS:
        data, size = _longer(data, size, zigzag)
        widest = _LONGEST
    return Cells(data[:, :widest], size)


def _longer(data: np.ndarray, size: np.ndarray, zigzag: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return varints of up to ten bytes, and their sizes. ``data``, ``size``: the first eight bytes, and the sizes of
    numbers of up to 56 bits; ``zigzag``: the numbers."""
    rest = zigzag >> _U(_WORD_BITS)
    more, tenth = rest > 0, rest >> _U(7)
    wide = np.zeros((len(data), _LONGEST), np.uint8)
    wide[:, :_WORD_BYTES] = data
    wide[more, :_WORD_BYTES] |= 0x80
    wide[:, 8] = rest & _U(0x7F) | (tenth > 0).astype(_U) << _U(7)
    wide[:, 9] = tenth
    return wide, np.where(more, 9 + (tenth > 0), size)


def join(parts: Sequence[Part], count: int) -> pa.BinaryArray:
    """n datums: the parts of each row, one after the other. None is null."""
    if not count:
        return _column([], 0)  # a column without rows may come without buffers
    columns: list[pa.Array] = []
    cells: list[Cells] = []
    for part in parts:
        if isinstance(part, Cells):
            cells.append(part)
            continue
        if cells:
            columns.append(_column(cells, count))
            cells = []
        columns.append(part)
    if cells or not columns:
        columns.append(_column(cells, count))
    if len(columns) == 1 and not columns[0].null_count:
        return columns[0]
    return pc.binary_join_element_wise(*columns, b"", null_handling="replace", null_replacement="")


def _column(cells: list[Cells], count: int) -> pa.BinaryArray:
    """Return the used bytes of the cells of each row, one after the other."""
    width = sum(one.data.shape[1] for one in cells)
    data = np.empty((count, width), np.uint8)
    used = np.ones((count, width), np.bool_)
    at, size = 0, np.zeros(count, np.int64)
    for one in cells:
        behind = at + one.data.shape[1]
        data[:, at:behind] = one.data
        if one.size is None:
            size += behind - at
        else:
            size += one.size
            for place in range(at, behind):
                np.greater(one.size, behind - 1 - place if one.at_end else place - at, out=used[:, place])
        at = behind
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(size, out=ends[1:])
    flat = data if ends[-1] == data.size else data[used]
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(flat)])
