"""Columns of zigzag varints, encoded for all rows at once. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def _pairs() -> tuple[np.ndarray, np.ndarray]:
    """Return bytes (the first one lower) and width of all varints that have one or two, by their zigzag form."""
    numbers = np.arange(1 << 14, dtype=np.uint16)
    two = numbers >= 0x80
    return np.where(two, numbers & 0x7F | 0x80 | numbers >> 7 << 8, numbers).astype("<u2"), (two + 1).astype(np.int8)


_PAIRS, _WIDTHS = _pairs()


def varints(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Encode n numbers (int64) as varints: bytes as uint8 of shape (n, widest), and how many of each row count."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    largest = int(zigzag.max(initial=0))
    if largest < 0x80:
        return zigzag.astype(np.uint8)[:, None], np.ones(len(numbers), np.int8)
    if largest < len(_PAIRS):
        return _PAIRS.take(zigzag.view(np.int64)).view(np.uint8).reshape(-1, 2), _WIDTHS.take(zigzag.view(np.int64))
    widest = -(-largest.bit_length() // 7)
    data = np.empty((len(numbers), widest), np.uint8)
    widths = np.ones(len(numbers), np.int8)
    for column in range(widest):
        rest = zigzag >> np.uint64(7)
        more = rest > 0
        data[:, column] = (zigzag & np.uint64(0x7F)).astype(np.uint8) | more.view(np.uint8) << 7
        widths += more
        zigzag = rest
    return data, widths


def ragged(fields: Sequence[tuple[np.ndarray, np.ndarray]]) -> pa.BinaryArray:
    """Concatenate varints: for each row the valid bytes of every field, one after the other."""
    count = len(fields[0][0])
    data = np.concatenate([data for data, _ in fields], axis=1)
    counting = np.ones(data.shape, np.bool_)
    ends = np.zeros(count + 1, np.int32)
    column, width = 0, np.zeros(count, np.int32)
    for field, widths in fields:
        width += widths
        for byte in range(1, field.shape[1]):
            np.greater(widths, byte, out=counting[:, column + byte])
        column += field.shape[1]
    np.cumsum(width, out=ends[1:])
    flat = data if ends[-1] == data.size else data[counting]
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(flat)])
