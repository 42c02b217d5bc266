"""Going through one datum, byte by byte: for the few that go on long after all others have ended. No I/O."""

from __future__ import annotations

#: Instead of a position: there is no such value.
WRONG = -1

#: Bytes of a varint of 64 bits; the last one has a single bit.
_LONGEST = 10


def walk_long(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at the begin of ``data[at:end]``, and the position behind it: WRONG if it does not end there, has more
    than 64 bits, or more bytes than it needs."""
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
    """The position behind a size and that many bytes in ``data[at:end]``, or WRONG."""
    size, at = walk_long(data, at, end)
    return at + size if 0 <= size <= end - at and at >= 0 else WRONG
