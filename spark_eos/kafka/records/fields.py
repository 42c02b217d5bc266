"""Finds the records of record batches (v2) and their fields, as arrays. No I/O.

A record consists of its length, one byte of attributes, the deltas of its timestamp and offset, key, value and headers.
All numbers are zigzag varints; a length of -1 stands for null. Only the search for the beginnings of records goes one
by one, and only if their lengths differ; everything else is done for thousands of records at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark_eos.kafka.records.batches import Damage

_VARINT_BYTES = 10
#: Records of the same length are found by comparing their first bytes, this many at a time.
_FEWEST_COMPARED, _MOST_COMPARED = 64, 4096
#: Records of different lengths that are visited before equal lengths are searched again.
_WALKED = 1024


def _step_table() -> list[list[int]]:
    """Return the size of a record in bytes, with its length field, by its first and its second byte; 0 if the length
    field has more than two bytes or is negative."""
    first, second = np.arange(256)[:, np.newaxis], np.arange(256)
    two = np.where(second < 0x80, 2 + (second << 6 | (first & 0x7F) >> 1), 0)
    steps: list[list[int]] = np.where(first & 1, 0, np.where(first < 0x80, 1 + (first >> 1), two)).tolist()
    return steps


_STEPS = _step_table()


def _varint_tables() -> tuple[np.ndarray, np.ndarray]:
    """Return size and number by the first two bytes of a varint, the first one being the lower; size 0 if it has
    more."""
    pairs = np.arange(1 << 16)
    first, second = pairs & 0xFF, pairs >> 8
    sizes = np.where(first < 0x80, 1, np.where(second < 0x80, 2, 0))
    zigzag = np.where(first < 0x80, first, first & 0x7F | second << 7)
    return sizes.astype(np.int8), (zigzag >> 1) ^ -(zigzag & 1)


_SIZES, _NUMBERS = _varint_tables()


@dataclass(frozen=True, slots=True)
class RecordFields:
    """The fields of n records, each an array of int64: deltas, and positions in the buffer. A null has no bytes and is
    marked by ``key_size`` or ``value_size`` -1. Headers lie from ``header_at`` to ``ends``."""

    time_delta: np.ndarray
    offset_delta: np.ndarray
    key_at: np.ndarray
    key_size: np.ndarray
    value_at: np.ndarray
    value_size: np.ndarray
    header_count: np.ndarray
    header_at: np.ndarray
    ends: np.ndarray


def find_records(data: bytes | bytearray, at: int, stop: int, count: int) -> np.ndarray:
    """Return where ``count`` records begin that fill ``data[at:stop]``, as an array of int64. Raises Damage."""
    parts: list[np.ndarray] = []
    raw = np.frombuffer(data, np.uint8)
    try:
        while count:
            if count >= _FEWEST_COMPARED:
                run, step = _equal_lengths(data, raw, at, stop, count)
                parts.append(np.arange(at, at + run * step, step))
                at, count = at + run * step, count - run
                if run >= _FEWEST_COMPARED:
                    continue
            walked = min(count, _WALKED)
            begins, at = _walk(data, at, walked)
            parts.append(begins)
            count -= walked
    except IndexError:
        raise Damage("records go on behind the end of their batch") from None
    if at != stop:
        raise Damage("the lengths of records do not add up to that of their batch")
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _equal_lengths(data: bytes | bytearray, raw: np.ndarray, at: int, stop: int, count: int) -> tuple[int, int]:
    """Return how many records from ``at`` on are surely as long as the first, and how long.

    A record's length determines where the next one begins. If that has the same length, the one after it is at the same
    distance; so a sequence that looks like records of one length, from the first on, is one.
    """
    step = _STEPS[data[at]][data[at + 1]]
    if not step:
        return 0, 1
    first, compared, run = raw[at], _FEWEST_COMPARED, 0
    two_bytes = first >= 0x80
    while run < count:
        compared = min(compared, count - run, (stop - at) // step - run)
        if compared <= 0:
            break
        begin = at + run * step
        differs = raw[begin : begin + compared * step : step] != first
        if two_bytes:
            differs |= raw[begin + 1 : begin + 1 + compared * step : step] != raw[at + 1]
        here = int(differs.argmax()) if differs.any() else compared
        run += here
        if here < compared:
            break
        compared = min(2 * compared, _MOST_COMPARED)
    return run, step


def _walk(data: bytes | bytearray, at: int, count: int) -> tuple[np.ndarray, int]:
    """Return where ``count`` records begin, one after the other, and where the last ends. Raises IndexError, Damage."""
    begins: list[int] = []
    add = begins.append
    steps = _STEPS
    for _ in range(count):
        add(at)
        at += steps[data[at]][data[at + 1]] or _long_step(data, at)
    return np.array(begins), at


def _long_step(data: bytes | bytearray, at: int) -> int:
    length, shift = 0, 0
    for size, byte in enumerate(data[at : at + 5], 1):
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if length & 1:
                raise Damage("the length of a record is negative")
            return size + (length >> 1)
    raise Damage("the length of a record has no end")


def read_fields(raw: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> RecordFields:
    """Return the fields of records from and up to these positions of ``raw`` (uint8). Raises Damage."""
    try:
        _, at = read_varints(raw, begins)
        time_delta, at = read_varints(raw, at + 1)
        offset_delta, at = read_varints(raw, at)
        key_size, key_at = read_varints(raw, at)
        value_size, value_at = read_varints(raw, key_at + _bytes(key_size, ends - key_at))
        header_count, header_at = read_varints(raw, value_at + _bytes(value_size, ends - value_at))
    except IndexError:
        raise Damage("the fields of a record go on behind its end") from None
    left = ends - header_at
    # A header has at least two bytes; a record without headers ends here.
    if (header_count < 0).any() or (left < 2 * header_count).any() or (left[header_count == 0] != 0).any():
        raise Damage("the fields of a record do not end where it does")
    return RecordFields(time_delta, offset_delta, key_at, key_size, value_at, value_size, header_count, header_at, ends)


def read_deltas(raw: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the timestamp and offset deltas of records, and the position after them in each. Raises Damage."""
    try:
        _, at = read_varints(raw, begins)
        time_delta, at = read_varints(raw, at + 1)
        offset_delta, at = read_varints(raw, at)
    except IndexError:
        raise Damage("the fields of a record go on behind its end") from None
    if (at >= ends).any():
        raise Damage("the fields of a record go on behind its end")
    return time_delta, offset_delta, at


def _bytes(sizes: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return the bytes of fields of these sizes: none for -1. Raises Damage if fewer are left."""
    if ((sizes < -1) | (sizes > left)).any():
        raise Damage("a field of a record has a wrong length")
    lengths: np.ndarray = np.maximum(sizes, 0)
    return lengths


def read_varints(raw: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers at these positions (int64), and the positions after them. Raises IndexError, Damage."""
    first = raw.take(at)
    if first.max(initial=0) < 0x80:
        return _NUMBERS.take(first), at + 1
    pairs = raw.take(at + 1, mode="clip").astype(np.uint16)  # the very last byte may be a number of one byte
    pairs <<= 8
    pairs |= first
    sizes = _SIZES.take(pairs)
    numbers, behind = _NUMBERS.take(pairs), at + sizes
    long = np.flatnonzero(sizes == 0)
    if long.size:
        numbers[long], behind[long] = _read_long_varints(raw, at[long])
    return numbers, behind


def _read_long_varints(raw: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    number = np.zeros(len(at), np.uint64)
    at, more = at.copy(), np.arange(len(at))
    for shift in range(0, 7 * _VARINT_BYTES, 7):
        byte = raw[at[more]]
        number[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        at[more] += 1
        more = more[byte >= 0x80]
        if not more.size:
            return (number >> np.uint64(1)).view(np.int64) ^ -(number & np.uint64(1)).view(np.int64), at
    raise Damage("a number in a record has no end")


def read_headers(data: bytes | bytearray, at: int, end: int, count: int) -> list[tuple[str, bytes | None]]:
    """Return the headers of one record. Raises Damage."""
    headers = []
    for _ in range(count):
        key, at = _read_bytes(data, at, end)
        value, at = _read_bytes(data, at, end)
        if key is None:
            raise Damage("a header has no key")
        headers.append((key.decode(errors="replace"), value))
    if at != end:
        raise Damage("the headers of a record do not end where it does")
    return headers


def _read_bytes(data: bytes | bytearray, at: int, end: int) -> tuple[bytes | None, int]:
    number, shift = 0, 0
    for byte in data[at : min(end, at + 5)]:
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise Damage("a number in a header has no end")
    size = (number >> 1) ^ -(number & 1)
    if size < 0:
        if size < -1:
            raise Damage("a header has a wrong length")
        return None, at
    if size > end - at:
        raise Damage("a header goes on behind the end of its record")
    return bytes(data[at : at + size]), at + size
