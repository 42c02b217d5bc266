"""Walks through a single datum, byte by byte, for the few arrays that are much longer than all others. No I/O."""

from __future__ import annotations

#: Returned instead of a position where there is no valid value.
WRONG = -1

#: Bytes of a varint of 64 bits, whose last byte has a single bit.
_LONGEST = 10


def walk_long(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the varint at the begin of ``data[at:end]``, and the position behind it: WRONG if the varint does not end
    there, has more than 64 bits, or more bytes than it needs."""
    if at < end:
        first = data[at]
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), at + 1
    number = 0
    for size, byte in enumerate(data[at : min(end, at + _LONGEST)], 1):
        number |= (byte & 0x7F) << 7 * (size - 1)
        if byte < 0x80:
            if byte == 0 or (size == _LONGEST and byte > 1):
                break
            return (number >> 1) ^ -(number & 1), at + size
    return 0, WRONG


def walk_piece(data: bytes, at: int, end: int) -> int:
    """Return the position behind a size and that many bytes in ``data[at:end]``; WRONG if they are not there."""
    size, at = walk_long(data, at, end)
    return at + size if 0 <= size <= end - at and at >= 0 else WRONG
