"""The hash functions by which Kafka's clients choose partitions, over a whole column of keys at once.

Each takes n keys as an Arrow array without nulls (binary) and returns n uint32.

Sources: Kafka's `Utils.murmur2` (the Java client and all that is built on it); librdkafka's `rd_fnv1a` (Sarama) and
`rd_crc32` (librdkafka's own default).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint32]

_MIX: Final = np.uint32(0x5BD1E995)
_SEED: Final = np.uint32(0x9747B28C)
_FNV_PRIME: Final = np.uint32(16777619)
_FNV_OFFSET: Final = np.uint32(2166136261)
#: With so few keys left, because all others are shorter, one after the other is faster than all at once.
_FEW: Final = 64


def crc32_of(keys: pa.BinaryArray) -> Hashes:
    """Return CRC-32 of each key, the hash of librdkafka's consistent partitioners."""
    return np.fromiter(map(crc32, keys.to_pylist()), np.uint32, len(keys))


def murmur2(keys: pa.BinaryArray) -> Hashes:
    """Return Murmur2 of each key: words of four bytes are mixed in one after the other, then the up to three remaining
    bytes."""
    alike = _of_one_length(keys)
    if alike is not None:
        return _murmur2_of(alike)
    by_length = _ByLength(keys)
    hashes = _SEED ^ by_length.lengths.astype(np.uint32)
    ends = by_length.lengths // 4
    for i, count in _rounds(ends):
        if count <= _FEW:
            for row in range(count):
                hashes[row] = _mixed_one_by_one(by_length.rest(row, 4 * i, 4 * int(ends[row])), int(hashes[row]))
            break
        hashes[:count] *= _MIX
        hashes[:count] ^= _mixed(by_length.words(4 * i, count))
    tails = by_length.starts + 4 * ends
    for index in (2, 1, 0):
        rows = np.flatnonzero(by_length.lengths % 4 > index)
        hashes[rows] ^= by_length.data[tails[rows] + index].astype(np.uint32) << np.uint32(8 * index)
    hashes[by_length.lengths % 4 > 0] *= _MIX
    return by_length.as_given(_finished(hashes))


def _murmur2_of(keys: npt.NDArray[np.uint8]) -> Hashes:
    """Return the hashes of n keys of the same length, given as bytes of shape (n, length)."""
    count, length = keys.shape
    hashes = np.full(count, _SEED ^ np.uint32(length))
    words = np.ndarray((count, length // 4), "<u4", keys.data, strides=(length, 4))
    for word in _mixed(words.T.astype(np.uint32, order="C")):
        hashes *= _MIX
        hashes ^= word
    for index in reversed(range(length % 4)):
        hashes ^= keys[:, length // 4 * 4 + index].astype(np.uint32) << np.uint32(8 * index)
    if length % 4:
        hashes *= _MIX
    return _finished(hashes)


def _finished(hashes: Hashes) -> Hashes:
    hashes ^= hashes >> np.uint32(13)
    hashes *= _MIX
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _of_one_length(keys: pa.BinaryArray) -> npt.NDArray[np.uint8] | None:
    """Return the bytes of keys of the same length, of shape (n, length); None if there are none, or of different
    lengths."""
    if not len(keys):
        return None
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int32, len(keys) + 1, 4 * keys.offset)
    length = int(ends[1]) - int(ends[0])
    if not length or (np.diff(ends) != length).any():
        return None
    return np.frombuffer(data, np.uint8, len(keys) * length, int(ends[0])).reshape(-1, length)


def fnv1a(keys: pa.BinaryArray) -> Hashes:
    """Return FNV-1a of 32 bits of each key; a hash that is negative as a signed number is replaced by its absolute
    value, as in Sarama."""
    by_length = _ByLength(keys)
    hashes = np.full(len(keys), _FNV_OFFSET)
    for i, count in _rounds(by_length.lengths):
        if count <= _FEW:
            for row in range(count):
                hashes[row] = _fnv1a_one(by_length.rest(row, i, int(by_length.lengths[row])), int(hashes[row]))
            break
        hashes[:count] ^= by_length.data[by_length.starts[:count] + i]
        hashes[:count] *= _FNV_PRIME
    return by_length.as_given(np.abs(hashes.view(np.int32)).view(np.uint32))


class _ByLength:
    """The keys sorted by length, the longest first, so that keys with an i-th byte come first. ``starts``: offsets in
    ``data``."""

    def __init__(self, keys: pa.BinaryArray) -> None:
        _, offsets, data = keys.buffers()
        count = len(keys)
        ends = np.frombuffer(offsets, np.int32, count + 1, 4 * keys.offset) if count else np.zeros(1, np.int32)
        lengths = np.diff(ends).astype(np.int64)
        self._order = np.argsort(-lengths, kind="stable")
        self.starts = ends[:-1].astype(np.int64)[self._order]
        self.lengths = lengths[self._order]
        self.data = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
        # The word at every offset, not only at multiples of four.
        offsets = max(0, len(self.data) - 3)
        self._words = np.ndarray(offsets, "<u4", self.data, strides=(1,)) if offsets else np.zeros(0, np.uint32)

    def words(self, offset: int, count: int) -> Hashes:
        """Return the word at this offset in each of the first keys."""
        return self._words[self.starts[:count] + offset]

    def rest(self, row: int, start: int, end: int) -> bytes:
        first = int(self.starts[row])
        return self.data[first + start : first + end].tobytes()

    def as_given(self, hashes: Hashes) -> Hashes:
        """Return the values in the original order of the keys."""
        given = np.empty_like(hashes)
        given[self._order] = hashes
        return given


def _rounds(lengths: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield, for each i below the greatest length, i and how many keys are longer. ``lengths``: in descending order."""
    rising = -lengths
    for i in range(int(lengths[0]) if len(lengths) else 0):
        yield i, int(np.searchsorted(rising, -i))


def _mixed(words: Hashes) -> Hashes:
    words *= _MIX
    words ^= words >> np.uint32(24)
    words *= _MIX
    return words


def _mixed_one_by_one(words: bytes, value: int) -> int:
    mix = int(_MIX)
    for word in _mixed(np.frombuffer(words, "<u4").astype(np.uint32)).tolist():
        value = value * mix & 0xFFFFFFFF ^ word
    return value


def _fnv1a_one(data: bytes, value: int) -> int:
    prime = int(_FNV_PRIME)
    for byte in data:
        value = (value ^ byte) * prime & 0xFFFFFFFF
    return value
