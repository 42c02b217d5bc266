"""Sealed batches anew: their rows in other batches, or under other sequence numbers. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

from fastcrc.crc32 import iscsi as crc32c

from spark_eos.kafka.records.batches import walk_batches
from spark_eos.kafka.records.columns import RecordGroup, groups, read_records, read_tails
from spark_eos.kafka.records.encode import SEQUENCES, Encoder, Rows, Sealed

#: Where a batch has its checksum, what the checksum covers, and the sequence number of its first record.
_CHECKSUM_AT, _CHECKED_FROM, _SEQUENCE_AT = 17, 21, 53


def later(sealed: Sealed, rows: int) -> Sealed:
    """A copy of the batch whose sequence numbers are higher by so many rows, or lower."""
    sequence = (sealed.sequence + rows) % SEQUENCES
    data = bytearray(sealed.data)
    struct.pack_into(">i", data, _SEQUENCE_AT, sequence)
    struct.pack_into(">I", data, _CHECKSUM_AT, crc32c(memoryview(data)[_CHECKED_FROM:]))
    return replace(sealed, data=bytes(data), sequence=sequence)


def halves(sealed: Sealed, encoder: Encoder) -> Iterator[Sealed]:
    """The rows of a batch of several, in order, under the same sequence numbers, in smaller ones of the same codec."""
    group, middle = _group(sealed), sealed.count // 2
    own = encoder.with_codec(group.batches[0].codec)
    for start, stop in ((0, middle), (middle, sealed.count)):
        rows, sequence = read_tails(group, start, stop), (sealed.sequence + start) % SEQUENCES
        yield from (half for _, half in own.encode(rows, [len(rows)], [sequence]))


def rows_of(sealed: Sealed) -> Rows:
    """The rows that a batch was made of."""
    return read_records(_group(sealed)).rows()


def _group(sealed: Sealed) -> RecordGroup:
    """A group of this batch alone."""
    data = bytes(sealed.data)
    (group,) = groups(data, walk_batches(data, len(data), ()))
    return group
