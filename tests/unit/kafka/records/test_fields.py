"""Records that are damaged though their batch's checksum is right: each way is named, and none gives a row."""

from __future__ import annotations

import numpy as np
import pytest

from spark_eos.kafka.records.batches import Damage
from spark_eos.kafka.records.fields import find_records, read_fields, read_headers, read_varints

WITHOUT_END = b"\x80" * 11


@pytest.mark.parametrize(
    ("data", "count", "message"),
    [
        (b"\x01\x00", 1, "the length of a record is negative"),
        (b"\x81\x01\x00", 1, "the length of a record is negative"),
        (WITHOUT_END, 1, "the length of a record has no end"),
        (b"\x02\x00\x02\x00", 3, "records go on behind the end of their batch"),
        (b"\x02\x00\x04\x00", 2, "the lengths of records do not add up to that of their batch"),
        (b"\x02\x00\x02\x00", 1, "the lengths of records do not add up to that of their batch"),
    ],
)
def test_records_are_not_found_by_lengths_that_are_wrong(data: bytes, count: int, message: str):
    """Lengths are varints: 02 is one byte, 01 is minus one."""
    with pytest.raises(Damage, match=message):
        find_records(data, 0, len(data), count)


def test_a_record_of_which_the_length_has_three_bytes():
    """It is found, and the next one behind it."""
    body = bytes(20_000)
    data = bytes([0xC0, 0xB8, 0x02]) + body + b"\x02\x00"
    assert find_records(data, 0, len(data), 2).tolist() == [0, 3 + len(body)]


#: A record's length, attributes, deltas of time and offset, key (null), value (null), and the number of headers.
NULLS = bytes([0x0C, 0, 0, 0, 0x01, 0x01, 0])


@pytest.mark.parametrize(
    ("at", "byte", "message"),
    [
        (4, 0x03, "a field of a record has a wrong length"),  # a key of -2 bytes
        (4, 0x06, "a field of a record has a wrong length"),  # a key of 3 bytes, where 2 are left
        (5, 0x04, "a field of a record has a wrong length"),
        (6, 0x01, "the fields of a record do not end where it does"),  # -1 headers
        (6, 0x02, "the fields of a record do not end where it does"),  # a header, and nothing behind it
        (6, 0x80, "the fields of a record go on behind its end"),
    ],
)
def test_fields_that_do_not_fit_their_record(at: int, byte: int, message: str):
    """One byte of a sound record is another: lengths that are too large or negative, headers that are not there."""
    data = bytearray(NULLS)
    data[at] = byte
    with pytest.raises(Damage, match=message):
        read_fields(np.frombuffer(data, np.uint8), np.array([0]), np.array([len(data)]))


def test_a_number_without_an_end():
    """No number has more than ten bytes."""
    with pytest.raises(Damage, match="a number in a record has no end"):
        read_varints(np.frombuffer(WITHOUT_END, np.uint8), np.array([0]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x01\x02v", "a header has no key"),
        (b"\x03\x02v", "a header has a wrong length"),
        (b"\x02k\x06v", "a header goes on behind the end of its record"),
        (WITHOUT_END, "a number in a header has no end"),
        (b"\x02k\x02v!", "the headers of a record do not end where it does"),
    ],
)
def test_headers_that_make_no_sense(data: bytes, message: str):
    """None of them is read as something else."""
    with pytest.raises(Damage, match=message):
        read_headers(data, 0, len(data), 1)


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_headers_are_read(kind: type[bytes] | type[bytearray]):
    """From whatever the records lie in; what is handed out is bytes of its own."""
    headers = read_headers(kind(b"\x02k\x02v\x00\x01"), 0, 6, 2)
    assert headers == [("k", b"v"), ("", None)]
    assert type(headers[0][1]) is bytes
