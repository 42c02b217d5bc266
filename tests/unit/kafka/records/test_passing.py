"""Which batches pass as they are; and what comes of those that do, read by a decoder that is not ours."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafka.record import MemoryRecords

from spark_eos.kafka.records.batches import RecordBatch, find_batches
from spark_eos.kafka.records.encode import SEQUENCES, Encoder, Sealed
from spark_eos.kafka.records.passing import is_small, passes, reseal
from tests.support.judges.record_batches import CODECS, HEADER, TIME, Batch, Record, encode, marker, plain, rows, seal

ENCODER = Encoder(77, 5)
#: Codecs that kafka-python reads without more libraries.
READ_BY_KAFKA_PYTHON = (0, 1)
ALL = 1 << 62
FLAGS_AT, DELTA_AT, COUNT_AT = 21, 23, 57


def found(data: bytes, start: int = 0, end: int = ALL, aborted=()) -> list[RecordBatch]:
    return find_batches(data, len(data), start, end, aborted)[0]


def with_flags(batch: Batch, flags: int) -> bytes:
    """The batch's bytes with more attributes."""
    data = bytearray(encode(batch))
    data[FLAGS_AT + 1] |= flags
    return seal(bytes(data))


def read(sealed: Sealed) -> list[tuple]:
    """By kafka-python where it can, with each field of the header held to what it has to be; else by `decode`."""
    data = bytes(sealed.data)
    batch = MemoryRecords(data).next_batch()
    assert batch.validate_crc()
    assert (batch.magic, batch.base_offset, batch.leader_epoch) == (2, 0, -1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 5, sealed.sequence)
    assert batch.attributes & ~0x07 == 0x10  # of the transaction, and nothing else
    assert HEADER.unpack_from(data)[6] == sealed.count - 1 == HEADER.unpack_from(data)[12] - 1
    if batch.compression_type in READ_BY_KAFKA_PYTHON:
        records = list(batch)
        assert [record.offset for record in records] == list(range(sealed.count))
        return [(r.key, r.value, r.timestamp, tuple(r.headers)) for r in records]
    return [
        (r["key"], r["value"], r["timestamp"], tuple((h["key"], h["value"]) for h in r["headers"] or ()))
        for r in rows(data, with_headers=True)
    ]


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_a_batch_passes(codec):
    """Of every codec, from a transaction or not; its records are not touched, and lie where they lay."""
    for producer in (-1, 4):
        data = bytearray(encode(plain(100, b"a" * 50, None, b"", codec=codec, producer=producer)))
        (batch,) = found(bytes(data))
        assert passes(batch, 100, 103)
        before = bytes(data[HEADER.size :])
        sealed = reseal(data, batch, ENCODER, SEQUENCES - 1)
        assert bytes(sealed.data) == bytes(data)
        assert bytes(data[HEADER.size :]) == before
        assert [row[:2] for row in read(sealed)] == [(None, b"a" * 50), (None, None), (None, b"")]


def test_both_timestamps_of_the_header_are_kept():
    """Records are relative to the first; brokers look at the latest."""
    batch = Batch((Record(7, TIME + 5), Record(8, TIME - 5), Record(9, TIME + 9)), 7, 9)
    data = bytearray(encode(batch))
    sealed = reseal(data, found(bytes(data))[0], ENCODER, 0)
    assert HEADER.unpack_from(sealed.data)[7:9] == (TIME + 5, TIME + 9)
    assert [row[2] for row in read(sealed)] == [TIME + 5, TIME - 5, TIME + 9]


GAP = Batch((Record(100), Record(102)), 100, 102)


@pytest.mark.parametrize(("codec", "small"), [("", 65_000), ("lz4", 32_000), ("zstd", 16_000), ("gzip", 4_000)])
def test_small_batches(codec, small):
    """By their bytes: what compresses slowly is sooner left as it is."""
    (batch,) = found(encode(plain(0, b"a", codec=codec)))
    for size, expected in ((100, True), (small, True), (small + 1000, False)):
        assert is_small(replace(batch, stop=batch.start + size - HEADER.size)) is expected


NOT_AS_THEY_ARE = {
    "a gap between records": encode(GAP),
    "a gap at the begin": encode(replace(GAP, base=99, records=(Record(100), Record(101), Record(102)))),
    "a gap at the end": encode(Batch((Record(100), Record(101)), 100, 102)),
    "append time": encode(plain(100, b"a", b"b", append_time=TIME + 1)),
    "a delete horizon": with_flags(plain(100, b"a", b"b"), 0x40),
    "append time in a transaction": encode(plain(100, b"a", append_time=TIME, producer=3)),
}


@pytest.mark.parametrize("kind", NOT_AS_THEY_ARE)
def test_what_a_broker_would_take_silently_is_encoded_anew(kind):
    """With gaps it would give offsets twice; an append time, a delete horizon would change what readers see."""
    (batch,) = found(NOT_AS_THEY_ARE[kind])
    assert not passes(batch, 0, ALL)


@pytest.mark.parametrize(("start", "end"), [(101, 103), (100, 102), (101, 102), (0, 101)])
def test_a_batch_at_the_edge_of_a_range(start, end):
    """It is never passed on with rows that nobody asked for."""
    (batch,) = found(encode(plain(100, b"a", b"b", b"c")), start, end)
    assert not passes(batch, start, end)


def test_what_holds_no_rows():
    """Markers, aborted batches, and batches of which a cleaner left nothing, pass in no way."""
    nothing_left = Batch((), 3, 9)
    data = encode(nothing_left) + encode(plain(10, b"a", producer=5)) + encode(marker(11, 5, commit=False))
    assert found(data, aborted=[(5, 10)]) == []
    (batch,) = found(data + encode(plain(12, b"x")), aborted=[(5, 10)])
    assert passes(batch, 12, 13)
    for lie in ({"control": True}, {"aborted": True}, {"count": 0}, {"attributes": batch.attributes | 0x20}):
        assert not passes(replace(batch, **lie), 0, ALL)


def test_what_is_not_known():
    """Nobody could split a batch of another codec; and a broker would take and keep any attribute. The reader stops
    before these, and what stops nowhere else does not pass."""
    (batch,) = found(encode(plain(0, b"a")))
    for attributes in (5, 6, 7, 1 << 7, 1 << 8, 1 << 15):
        assert not passes(replace(batch, codec=attributes & 7, attributes=attributes), 0, ALL)
