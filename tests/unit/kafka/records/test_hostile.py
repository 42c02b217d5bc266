"""Bytes that are no records: every reader says so by `Damage`, or reads what is there, in no time."""

from __future__ import annotations

import struct
from contextlib import suppress

import numpy as np
from fastcrc.crc32 import iscsi as crc32c
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.kafka.records.batches import Damage, decompress, walk_batches
from spark_eos.kafka.records.fields import find_records, read_deltas, read_fields, read_headers
from tests.support.judges.processor import worked_for

#: Seconds for one example.
MOST_S = 1.0

#: Bytes as they might be of records: small zigzag numbers, and varints of any length.
BYTES = st.lists(
    st.binary(max_size=6) | st.sampled_from([b"\x00", b"\x02", b"\x0c", b"\xff" * 4, b"\xff" * 11, b"\x80" * 9]),
    max_size=30,
).map(b"".join)


def batch(body: bytes, attributes: int, count: int) -> bytes:
    """A batch with a right checksum, and these bytes for its records."""
    checked = struct.pack(">hiqqqhii", attributes, max(0, count - 1), 0, 0, 7, 0, 0, count) + body
    rest = struct.pack(">iBI", 0, 2, crc32c(checked)) + checked
    return struct.pack(">qi", 5, len(rest)) + rest


@given(BYTES, st.integers(0, 4), st.integers(0, 200))
@worked_for(MOST_S)
def test_any_records_are_read_or_damaged(body, codec, count):
    """Of a batch whose checksum is right, by every codec."""
    data = batch(body, codec, count)
    for found in walk_batches(data, len(data), ()):
        with suppress(Damage):
            plain = decompress(data, found) if found.codec else data[found.start : found.stop]
            begins = find_records(plain, 0, len(plain), found.count)
            if not len(begins):
                continue
            raw, ends = np.frombuffer(plain, np.uint8), np.append(begins[1:], len(plain))
            with suppress(Damage):
                read_deltas(raw, begins, ends)
            fields = read_fields(raw, begins, ends)
            for at, end, headers in zip(fields.header_at, fields.ends, fields.header_count, strict=True):
                read_headers(plain, int(at), int(end), int(headers))
