"""Damaged bytes of a Fetch response never become a wrong row: a named error, or whole batches from the start."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_eos.errors import KafkaError
from tests.support.judges.conditions import raises
from tests.support.judges.record_batches import (
    CODECS,
    HEADER,
    TIME,
    Batch,
    Record,
    encode,
    expected,
    plain,
    rows,
    seal,
    values,
)


def sound(seed: int) -> list[Batch]:
    """A log with all codecs; headers, nulls, equal and different lengths."""
    chance = random.Random(seed)
    log, offset = [], 10
    for codec in chance.sample(sorted(CODECS), 3):
        records = tuple(
            Record(
                offset + i,
                TIME + chance.randrange(100),
                chance.choice([None, b"", b"key"]),
                chance.choice([None, bytes(chance.randrange(90))]) if seed % 2 else bytes(80),
                (("h", b"x"), ("", None)) if chance.random() < 0.1 else (),
            )
            for i in range(chance.randrange(1, 150))
        )
        log.append(Batch(records, offset, records[-1].offset, codec))
        offset = records[-1].offset + 1
    return log


def outcome(data: bytes) -> list[dict] | None:
    """The rows, or None for an error that is meant to come; any other exception fails the test."""
    try:
        return rows(data, with_headers=True)
    except KafkaError as error:
        assert error.condition in ("EOS_SOURCE_DAMAGED", "EOS_SOURCE_FETCH", "EOS_SOURCE_TIMESTAMP")
        return None


@given(st.integers(0, 7), st.integers(0, 2**32), st.integers(1, 255), st.booleans())
@example(0, 8, 0xFF, False)  # the length of the first batch is negative
@example(0, 11, 1, False)
@example(0, 16, 3, False)  # its format is v1
def test_a_flipped_byte_never_gives_a_wrong_row(seed, place, flip, truncate):
    """The named error, or whole batches from the start. First offsets have no checksum: those are left alone."""
    log = sound(seed)
    encoded = [encode(batch) for batch in log]
    data = bytearray(b"".join(encoded))
    place %= len(data)
    starts = [sum(map(len, encoded[:i])) for i in range(len(encoded))]
    if any(start <= place < start + 8 for start in starts):
        return
    data[place] ^= flip
    if truncate:
        del data[(place * 31) % len(data) :]
    got = outcome(bytes(data))
    prefixes = [expected(log[:i], with_headers=True) for i in range(len(log) + 1)]
    assert got is None or got in prefixes


def slowly(data: bytes) -> list[dict]:
    """The rows of one uncompressed batch, read byte by byte as the format says. Raises ValueError, IndexError."""
    base, _, _, _, _, flags, last, time, max_time, _, _, _, count = HEADER.unpack_from(data)
    at, result = HEADER.size, []

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                value &= 2**64 - 1
                return value >> 1 ^ -(value & 1)
            must(shift < 70)

    def field(end: int) -> bytes | None:
        nonlocal at
        size = number()
        must(-1 <= size <= end - at)
        start, at = at, at + max(size, 0)
        return data[start:at] if size >= 0 else None

    def header(end: int) -> dict:
        key = field(end)
        must(key is not None)
        return {"key": key.decode(errors="replace"), "value": field(end)}

    must(flags & ~0x7F == 0 and 0 <= count <= last + 1)
    if flags & 0x20 or not count:
        return []
    must(flags & 7 == 0)
    for _ in range(count):
        end = number() + at
        at += 1
        stamp = time + number()
        offset = base + number()
        must((result[-1]["offset"] + 1 if result else base) <= offset <= base + last)
        row = {"key": field(end), "value": field(end), "topic": "t", "partition": 3, "offset": offset}
        headers = number()
        must(headers >= 0)
        headers = [header(end) for _ in range(headers)]
        must(at == end)
        stamp = max_time if flags & 8 else stamp
        must(abs(stamp) <= (2**63 - 1) // 1000)
        result.append(row | {"timestamp": stamp, "timestampType": int(flags & 8 > 0), "headers": headers or None})
    must(at == len(data))
    return result


def must(true: bool) -> None:
    if not true:
        raise ValueError


@given(st.integers(0, 7), st.lists(st.tuples(st.integers(0, 2**32), st.integers(0, 255)), min_size=1, max_size=3))
@example(1, [(1070, 13)])  # a length of -7 for 6
def test_damage_that_the_checksum_covers_up(seed, changes):
    """Records written wrongly in the first place: the named error, just where reading them one by one fails too."""
    batch = replace(sound(seed)[0], codec="")
    data = bytearray(encode(batch))
    for place, byte in changes:
        data[21 + place % (len(data) - 21)] = byte
    data = seal(data)
    try:
        asked = slowly(data)
    except (ValueError, IndexError):
        asked = None
    assert outcome(data) == asked


@pytest.mark.parametrize("codec", sorted(set(CODECS) - {""}))
def test_compressed_bytes_that_are_damaged_under_a_right_checksum(codec):
    """Cut off, changed, or nonsense; and a record section longer than its records."""
    batch = encode(plain(0, *[b"%d" % i for i in range(500)], codec=codec))
    chance = random.Random(codec)
    for _ in range(50):
        data = bytearray(batch)
        data[chance.randrange(HEADER.size, len(data))] ^= chance.randrange(1, 256)
        outcome(seal(data))
    assert outcome(seal(batch[: HEADER.size + 20])) is None
    assert outcome(seal(batch[: HEADER.size] + b"\xff" * 40)) is None
    assert outcome(seal(batch[: HEADER.size] + CODECS[codec][1](b"\x00" * 99))) is None


@pytest.mark.parametrize(
    ("place", "form", "value"),
    [
        (8, ">i", 48),
        (8, ">i", -1),
        (16, "b", 3),
        (21, ">h", 0x80),
        (21, ">h", 0x100),
        (21, ">h", -0x8000),
        (23, ">i", -1),
        (57, ">i", -1),
        (57, ">i", 3),
    ],
)
def test_headers_of_batches_that_make_no_sense(place, form, value):
    """Length, format, unknown flags, last offset delta, number of records."""
    data = bytearray(encode(plain(5, b"a", b"b")))
    struct.pack_into(form, data, place, value)
    if place > 16:
        data = seal(data)
    with raises("EOS_SOURCE_DAMAGED", "t-3 from offset 0 on are damaged"):
        rows(bytes(data))


def test_offsets_out_of_order():
    """Between batches and in one: what a checksum cannot know."""
    one, two = encode(plain(5, b"a", b"b")), encode(plain(7, b"c"))
    assert values(one + two) == [b"a", b"b", b"c"]
    for wrong in (two + one, one + one):
        with pytest.raises(KafkaError, match="comes after offset"):
            rows(wrong)
    for offsets in [(5, 5), (6, 5), (4, 5), (5, 8)]:
        records = tuple(Record(offset) for offset in offsets)
        with pytest.raises(KafkaError, match="out of order"):
            rows(encode(Batch(records, 5, 7)))


def test_the_offset_from_which_on_records_are_damaged():
    """Behind the rows that came, whether the next ones can be decompressed or not."""
    good = encode(plain(5, bytes(1 << 20), codec="lz4"))
    broken = encode(plain(9, b"a", codec="lz4"))
    for records, offset in ((bytes(40), 6), (CODECS["lz4"][1](bytes(40)), 9)):
        with pytest.raises(KafkaError, match=f"t-3 from offset {offset} on are damaged"):
            values(good + seal(broken[: HEADER.size] + records))
