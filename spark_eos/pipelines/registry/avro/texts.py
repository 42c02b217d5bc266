"""Columns of strings: invalid UTF-8, UUIDs, and duplicate keys of maps. No I/O."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
_UUID_DASHES = (8, 13, 18, 23)
_UUID_LENGTH = 36
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID_PLACES = np.array([place for place in range(_UUID_LENGTH) if place not in _UUID_DASHES])


def as_texts(values: pa.BinaryArray) -> tuple[pa.StringArray, np.ndarray | None]:
    """Convert n values to strings. Returns also which are not UTF-8 (n bool), or None if all are; these become empty
    strings."""
    try:
        return values.cast(pa.string()), None
    except pa.ArrowInvalid:
        wrong = _not_utf8(values)
        return pc.fill_null(null_but_where(~wrong, values).cast(pa.string()), ""), wrong


def null_but_where(valid: np.ndarray, values: pa.Array) -> pa.Array:
    """n values of binary or string, with null where ``valid`` (n bool) is false. Arrow's if_else returns wrong bytes
    for slices before Arrow 24."""
    if not len(values):
        return values
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]
    if values.null_count:
        valid = valid & values.is_valid().to_numpy(zero_copy_only=False)
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    data = values.buffers()[2] or pa.py_buffer(b"")
    return pa.Array.from_buffers(values.type, len(values), [bits, pa.py_buffer(offsets), data])


def _not_utf8(values: pa.BinaryArray) -> np.ndarray:
    """Return which of n values without nulls are not UTF-8 by Python's rules, in one pass over all bytes."""
    # Python decodes each invalid byte as a surrogate, U+DC80 to U+DCFF, which valid UTF-8 does not have. A zero byte
    # after each value ends a sequence that would continue in the next value.
    nothing, zero = (pa.scalar(one, pa.large_binary()) for one in (b"", b"\0"))
    closed = pc.binary_join_element_wise(values.cast(pa.large_binary()), zero, nothing)
    ends = np.cumsum(pc.binary_length(closed).to_numpy(zero_copy_only=False))
    text = closed.buffers()[2].to_pybytes()[: ends[-1]].decode("utf-8", "surrogateescape")
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    escaped = points >> 7 == 0xDC80 >> 7
    sizes = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    sizes[escaped] = 1
    at = np.cumsum(sizes) - sizes
    wrong = np.zeros(len(values), np.bool_)
    wrong[np.searchsorted(ends, at[escaped], side="right")] = True
    return wrong


def not_uuids(texts: pa.StringArray) -> np.ndarray:
    """Return which of n strings do not have the form of a UUID, n bool; false for null."""
    canonical: np.ndarray = pc.fill_null(pc.match_substring_regex(texts, _UUID), True).to_numpy(zero_copy_only=False)
    return ~canonical


def uuid_texts(data: np.ndarray) -> pa.StringArray:
    """Convert UUIDs of n × 16 bytes to strings in lower case."""
    count = len(data)
    letters = np.full((count, _UUID_LENGTH), ord("-"), np.uint8)
    letters[:, _UUID_PLACES[0::2]] = _DIGITS[data >> 4]
    letters[:, _UUID_PLACES[1::2]] = _DIGITS[data & 15]
    ends = np.arange(0, _UUID_LENGTH * (count + 1), _UUID_LENGTH, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(letters)])


def uuid_bytes(texts: pa.StringArray) -> np.ndarray:
    """Return the n × 16 bytes of n strings that have the form of a UUID."""
    joined = pc.replace_substring(pc.utf8_lower(texts), "-", "").cast(pa.binary()).cast(pa.binary(32))
    letters = np.frombuffer(joined.buffers()[1], np.uint8)[32 * joined.offset :][: 32 * len(texts)].reshape(-1, 32)
    digits = np.where(letters > ord("9"), letters - (ord("a") - 10), letters - ord("0"))
    return digits[:, 0::2] << 4 | digits[:, 1::2]


def twice(lane: np.ndarray, keys: pa.Array) -> np.ndarray:
    """Return the lanes (int64) that have a key more than once. ``lane``: the lane of each of the n keys, n int64."""
    codes = keys.dictionary_encode()
    same = np.sort(lane * max(1, len(codes.dictionary)) + codes.indices.to_numpy(zero_copy_only=False))
    lanes: np.ndarray = same[1:][np.diff(same) == 0] // max(1, len(codes.dictionary))
    return lanes
