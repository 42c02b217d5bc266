"""Encoded batches in other forms: split, or with other sequence numbers. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

from fastcrc.crc32 import iscsi as crc32c

from spark_eos.kafka.records.batches import walk_batches
from spark_eos.kafka.records.columns import RecordGroup, groups, read_records, read_tails
from spark_eos.kafka.records.encode import SEQUENCES, Encoder, Rows, Sealed

#: Positions in a batch: the checksum, the bytes that it covers, and the first record's sequence number.
_CHECKSUM_AT, _CHECKED_FROM, _SEQUENCE_AT = 17, 21, 53


def later(sealed: Sealed, rows: int) -> Sealed:
    """Return a copy of the batch with sequence numbers that are higher by so many rows; lower for a negative number."""
    sequence = (sealed.sequence + rows) % SEQUENCES
    data = bytearray(sealed.data)
    struct.pack_into(">i", data, _SEQUENCE_AT, sequence)
    struct.pack_into(">I", data, _CHECKSUM_AT, crc32c(memoryview(data)[_CHECKED_FROM:]))
    return replace(sealed, data=bytes(data), sequence=sequence)


def halves(sealed: Sealed, encoder: Encoder) -> Iterator[Sealed]:
    """Yield the rows of a batch, in order and with the same sequence numbers, in smaller batches of the same codec."""
    group, middle = _group(sealed), sealed.count // 2
    own = encoder.with_codec(group.batches[0].codec)
    for start, stop in ((0, middle), (middle, sealed.count)):
        rows, sequence = read_tails(group, start, stop), (sealed.sequence + start) % SEQUENCES
        yield from (half for _, half in own.encode(rows, [len(rows)], [sequence]))


def rows_of(sealed: Sealed) -> Rows:
    """Return the rows of an encoded batch."""
    return read_records(_group(sealed)).rows()


def _group(sealed: Sealed) -> RecordGroup:
    """Return a `RecordGroup` of one batch."""
    data = bytes(sealed.data)
    (group,) = groups(data, walk_batches(data, len(data), ()))
    return group
