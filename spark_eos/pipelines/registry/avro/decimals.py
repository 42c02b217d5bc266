"""Columns of decimals of up to 38 digits, in datums as big-endian two's complement of any size. No I/O."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_eos.pipelines.registry.avro.cursor import DatumBytes

_U = np.uint64
_WORD_BITS, _WORD_BYTES = 64, 8
_MASK = (1 << _WORD_BITS) - 1
#: Bytes of Arrow's decimal128.
BYTES = 16


def read_decimals(data: DatumBytes, at: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read n numbers at these positions, of these sizes in bytes (int64): their upper words (int64), their lower words
    (uint64), and which have no bytes or more than 128 bits (bool)."""
    wrong = size == 0
    long = np.flatnonzero(size > BYTES)
    if long.size:
        extra = size[long] - BYTES
        wrong[long] = ~_only_signs(data, at[long], extra)
        at, size = at.copy(), size.copy()
        at[long] += extra
        size[long] = BYTES
    upper = data.words(at, ">u8").astype(_U)
    # Up to 8 bytes are the upper end of the first word; more are in both words.
    one = size <= _WORD_BYTES
    # A shift is less than 64 bits, also for a size that is wrong.
    down = ((np.where(one, _WORD_BYTES, BYTES) - size) * 8 & 63).astype(_U)
    signed = upper.view(np.int64)
    high, low = signed >> 63, (signed >> down.view(np.int64)).view(_U)
    two = np.flatnonzero(~one)
    if two.size:
        shift = down[two]
        second = data.words(at[two] + _WORD_BYTES, ">u8").astype(_U)
        low[two] = second >> shift | upper[two] << _U(1) << (_U(63) - shift)
        high[two] = signed[two] >> shift.view(np.int64)
    return high, low, wrong


def _only_signs(data: DatumBytes, at: np.ndarray, extra: np.ndarray) -> np.ndarray:
    """Tell whether the first ``extra`` bytes (at least one) of each number only repeat the sign of the rest, n bool."""
    sign = np.where(data.raw.take(at + extra) & 0x80, 0xFF, 0)
    begins = np.cumsum(extra) - extra
    places = np.arange(int(extra.sum())) + np.repeat(at - begins, extra)
    same = data.raw.take(places) == np.repeat(sign, extra)
    only: np.ndarray = np.logical_and.reduceat(same, begins)
    return only


def too_long(high: np.ndarray, low: np.ndarray, precision: int) -> np.ndarray:
    """Return which numbers (upper words int64, lower words uint64) have more than ``precision`` digits, n bool."""
    most, least = 10**precision - 1, 1 - 10**precision
    above = _less(most >> _WORD_BITS, most & _MASK, high, low)
    below = _less(high, low, least >> _WORD_BITS, least & _MASK)
    only_signs: np.ndarray = above | below
    return only_signs


def _less(
    high: np.ndarray | int, low: np.ndarray | int, other_high: np.ndarray | int, other_low: np.ndarray | int
) -> np.ndarray:
    """Compare numbers: true where the first is less than the second."""
    less: np.ndarray = np.less(high, other_high) | np.equal(high, other_high) & np.less(_U(low), _U(other_low))
    return less


def column_of(high: np.ndarray, low: np.ndarray, type_: pa.DataType) -> pa.Array:
    """n numbers as decimal128."""
    words = np.empty((len(high), 2), "<i8")
    words[:, 0] = low.view(np.int64)
    words[:, 1] = high
    return pa.Array.from_buffers(type_, len(high), [None, pa.py_buffer(words)])


def words_of(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the upper (int64) and lower (uint64) words of n decimal128; any words for null."""
    words = np.frombuffer(column.buffers()[1], "<i8") if len(column) else np.empty(0, np.int64)
    words = words[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)
    return words[:, 1].copy(), words[:, 0].copy().view(_U)


def bytes_of(high: np.ndarray, low: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """n numbers as big-endian two's complement of 16 bytes (n × 16), and how many of the last bytes are needed."""
    words = np.empty((len(high), 2), ">i8")
    words[:, 0] = high
    words[:, 1] = low.view(np.int64)
    data = words.view(np.uint8).reshape(-1, BYTES)
    # The bits that differ from the sign, as an unsigned number.
    sign = high >> 63
    upper, lower = (high ^ sign).view(_U), low ^ sign.view(_U)
    bits = np.where(upper > 0, _WORD_BITS + _bit_length(upper), _bit_length(lower))
    return data, bits // 8 + 1


def _bit_length(words: np.ndarray) -> np.ndarray:
    # By halves, which a float holds exactly.
    upper, lower = words >> _U(32), words & _U(0xFFFF_FFFF)
    length = np.frexp(lower.astype(np.float64))[1]
    return np.where(upper > 0, 32 + np.frexp(upper.astype(np.float64))[1], length).astype(np.int64)
