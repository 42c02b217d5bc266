"""The record batches (v2) of a Fetch response that contain rows, verified and decompressed. No I/O.

The checksum of a batch does not cover its first offset, its length and its leader epoch. A wrong length makes the
checksum fail. A wrong first offset is detected if batches overlap; otherwise no reader can distinguish it from a gap
left by compaction.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

import pyarrow as pa
from fastcrc.crc32 import iscsi as crc32c

#: First offset, length, leader epoch, magic, checksum, attributes, last offset delta, first and maximal timestamp,
#: producer id, epoch and sequence, number of records. The length does not include itself.
_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_ENDS_AT = 12
_MAGIC_AT = 16
_CHECKED_FROM = 21

CODEC = 0x07
_LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40  # KIP-534: the first timestamp then is a delete horizon; deltas are still relative to it
_KNOWN = CODEC | _LOG_APPEND_TIME | TRANSACTIONAL | _CONTROL | _DELETE_HORIZON

_SNAPPY = 2
_STREAMED = {1: "gzip", 3: "lz4", 4: "zstd"}
LAST_CODEC = max(_STREAMED)
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_SNAPPY_MOST = 22  # a copy of 3 bytes makes 64
#: Of a batch, decompressed, so that positions within a group of which it is the last one have 31 bits.
MOST_MIB = 2046
_MOST_BYTES = MOST_MIB * 1024 * 1024
_PIECE_BYTES = 256 * 1024


class Damage(Exception):
    """The bytes are damaged: no correct broker sends them."""


class TooLargeBatch(Damage):
    """The batch of offsets ``base`` to ``last`` has more than ``most`` bytes, decompressed."""

    def __init__(self, base: int, last: int, most: int) -> None:
        super().__init__(f"the batch at offset {base} has more than {most:,} bytes, decompressed")
        self.base, self.last, self.most = base, last, most


class OtherEpoch(Exception):
    """The batch at offset ``base`` was written by the leader of an epoch that does not belong there."""

    def __init__(self, base: int, epoch: int) -> None:
        super().__init__(f"the batch at offset {base} is of leader epoch {epoch}")
        self.base, self.epoch = base, epoch


class UnsupportedFormat(Damage):
    """The bytes have a format that this client does not know: messages before v2, or a new codec."""


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """A batch of offsets ``base`` to ``last``, inclusive; its records are bytes ``start`` to ``stop``.

    ``time``: milliseconds to which the records' deltas are relative; ``append_time``: the timestamp of all records if
    the broker set it, otherwise None. ``codec``: 0 if the records are not compressed. ``control``: it holds a marker,
    no rows; ``sequence``: its producer's number of its first record; ``aborted``: its transaction was aborted.
    ``attributes``, ``max_time`` (milliseconds) and ``checksum`` are as they stand in its header. ``leader_epoch``: of
    the leader that has written it, which the checksum does not cover; -1 where it is not known.
    """

    base: int
    last: int
    count: int
    time: int
    append_time: int | None
    codec: int
    start: int
    stop: int
    producer_id: int
    epoch: int
    sequence: int
    control: bool
    aborted: bool
    attributes: int
    max_time: int
    checksum: int
    leader_epoch: int

    @property
    def size(self) -> int:
        """Bytes, with the header."""
        return self.stop - self.start + _HEADER.size

    @property
    def visible(self) -> bool:
        """Return whether a read_committed reader sees rows of the batch."""
        return bool(self.count) and not self.control and not self.aborted


def find_batches(
    data: bytes | bytearray,
    size: int,
    start: int,
    end: int,
    aborted: Iterable[tuple[int, int]],
    see: Callable[[RecordBatch], None] | None = None,
    begin: int = 0,
) -> tuple[list[RecordBatch], int]:
    """Return the batches with rows of offsets ``start`` to ``end``, exclusive, and the offset to fetch next.

    Left out are control batches, batches of aborted transactions, and a last batch that is cut off. The next offset is
    behind the last whole batch of any kind; it is ``start`` where there is none. ``see`` is called with each whole
    batch, and may raise OtherEpoch. Raises Damage, and UnsupportedFormat or OtherEpoch for the first batch; a later
    batch with one of these two ends the result before it, as in `walk_batches`.
    """
    batches: list[RecordBatch] = []
    position = start
    try:
        for batch in walk_batches(data, size, aborted, begin):
            if see is not None:
                see(batch)
            if batch.visible and batch.last >= start and batch.base < end:
                if batch.codec > LAST_CODEC:
                    raise UnsupportedFormat(f"compression codec {batch.codec}")
                batches.append(batch)
            position = max(position, batch.last + 1)
    except (UnsupportedFormat, OtherEpoch):
        if position == start:
            raise
    return batches, position


def walk_batches(
    data: bytes | bytearray | memoryview, size: int, aborted: Iterable[tuple[int, int]], begin: int = 0
) -> Iterator[RecordBatch]:
    """Yield all whole batches in ``size`` bytes from ``begin`` on.

    ``aborted``: transactions as ``(producer id, first offset)``, as a Fetch response lists them. KIP-98: from its first
    offset on, all of a producer is aborted until its marker. Raises Damage.
    """
    beginning = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    view = memoryview(data)
    at, end, previous = begin, begin + size, -1
    while end - at > _MAGIC_AT:
        stop = _end_of_batch(view, at)
        if stop > end:
            return
        fields = _HEADER.unpack_from(view, at)
        base, _, leader_epoch, _, checksum, flags, delta, time, max_time, producer, epoch, sequence, count = fields
        if crc32c(view[at + _CHECKED_FROM : stop]) != checksum:
            raise Damage(f"the checksum of the batch at offset {base} does not match")
        if flags & ~_KNOWN or delta < 0 or not 0 <= count <= delta + 1:
            raise Damage(f"the header of the batch at offset {base} makes no sense")
        if base <= previous:
            raise Damage(f"a batch at offset {base} comes after offset {previous}")
        previous = last = base + delta
        while beginning and beginning[-1][1] <= last:
            aborting.add(beginning.pop()[0])
        control = bool(flags & _CONTROL)
        gone = bool(flags & TRANSACTIONAL) and producer in aborting
        if control:
            aborting.discard(producer)
        yield RecordBatch(
            base,
            last,
            count,
            time,
            max_time if flags & _LOG_APPEND_TIME else None,
            flags & CODEC,
            at + _HEADER.size,
            stop,
            producer,
            epoch,
            sequence,
            control,
            gone,
            flags,
            max_time,
            checksum,
            leader_epoch,
        )
        at = stop


def _end_of_batch(view: memoryview, at: int) -> int:
    """Return where the batch that begins here ends, if it is all there. Raises Damage."""
    base, length = struct.unpack_from(">qi", view, at)
    if view[at + _MAGIC_AT] != 2:
        raise _other_magic(view[at + _MAGIC_AT])
    stop: int = at + _LENGTH_ENDS_AT + length
    if stop < at + _HEADER.size:
        raise Damage(f"a batch at offset {base} is said to have {length} bytes")
    return stop


def _other_magic(magic: int) -> Damage:
    if magic < 2:
        return UnsupportedFormat(f"messages of format v{magic}")
    return Damage(f"there is no message format v{magic}")


def decompress(data: bytes | bytearray, batch: RecordBatch, most_bytes: int | None = None) -> bytes:
    """Return the records of a compressed batch in ``data``; at most so many bytes, and never more than `MOST_MIB`.

    Some kilobytes may be gigabytes when they are decompressed. So no size that the bytes themselves claim is believed,
    and nothing is decompressed much beyond the limit: the memory is at most twice the limit. Raises Damage,
    TooLargeBatch.
    """
    section = memoryview(data)[batch.start : batch.stop]
    most = min(most_bytes or _MOST_BYTES, _MOST_BYTES)
    too_large = TooLargeBatch(batch.base, batch.last, most)
    try:
        if batch.codec == _SNAPPY:
            blocks = _xerial_blocks(section) if section[:8] == _XERIAL else (section,)
            return _joined(_snappy_pieces(blocks, most, too_large), most, too_large)
        stream = pa.CompressedInputStream(pa.BufferReader(section), _STREAMED[batch.codec])
        piece_bytes = min(_PIECE_BYTES, most + 1)
        first: bytes = stream.read(piece_bytes)
        if len(first) < piece_bytes:  # as only at the end of the stream
            return first
        return _joined(chain((first,), iter(partial(stream.read, piece_bytes), b"")), most, too_large)
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise Damage(f"the records of the batch at offset {batch.base} cannot be decompressed ({error})") from error


def _joined(pieces: Iterable[bytes], most: int, too_large: TooLargeBatch) -> bytes:
    """Return the records of a batch, from the pieces in which they are decompressed. Raises ``too_large``."""
    held, size = [], 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > most:
            raise too_large
    return b"".join(held)


def _xerial_blocks(section: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of Java's framing of snappy: a header, then blocks, each behind its size."""
    at = _XERIAL_HEADER
    while at < len(section):
        if len(section) - at < 4:
            raise Damage("a block of compressed records is cut off")
        (size,) = struct.unpack_from(">i", section, at)
        at += 4
        if not 0 < size <= len(section) - at:
            raise Damage("a block of compressed records has a wrong size")
        yield section[at : at + size]
        at += size


def _snappy_pieces(blocks: Iterable[memoryview], most: int, too_large: TooLargeBatch) -> Iterator[bytes]:
    """Decompress blocks. Each begins with its decompressed size, which is not believed if the block cannot have it.
    Raises ``too_large`` before a block that goes beyond the limit is decompressed."""
    left = most
    for block in blocks:
        size, shift = 0, 0
        for byte in block[:5]:
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if size > _SNAPPY_MOST * len(block):
            raise Damage("a block of compressed records says that it is larger than it can be")
        if size > left:
            raise too_large
        left -= size
        yield pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True)
