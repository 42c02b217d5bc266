"""Decompression has a limit, whatever the codec, and whatever the bytes claim; below it, others read the same."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_eos.kafka.records.batches import Damage, RecordBatch, TooLargeBatch, decompress
from tests.support.judges.record_batches import CODECS

MIB = 1024 * 1024


def framed(codec: str, data: bytes, pieces: int) -> bytes:
    """In so many frames, one after the other, without the size of the content."""
    cuts = [len(data) * i // pieces for i in range(pieces + 1)]
    return b"".join(CODECS[codec][1](data[start:stop]) for start, stop in pairwise(cuts))


def copied(out: bytearray, back: int, count: int) -> None:
    """Bytes that were there before, which may reach into those that are copied."""
    start = len(out) - back
    while count > 0:
        piece = out[start : start + count]
        out += piece
        count -= len(piece)


def of_snappy(block: bytes) -> bytes:
    """By its format description."""
    size = shift = at = 0
    while True:
        byte, at = block[at], at + 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    out = bytearray()
    while at < len(block):
        tag, at = block[at], at + 1
        if tag & 3 == 0:
            count = tag >> 2
            if count >= 60:
                width = count - 59
                count, at = int.from_bytes(block[at : at + width], "little"), at + width
            out += block[at : at + count + 1]
            at += count + 1
            continue
        if tag & 3 == 1:
            count, back, at = 4 + (tag >> 2 & 7), (tag >> 5) << 8 | block[at], at + 1
        else:
            width = 2 if tag & 3 == 2 else 4
            count, back, at = 1 + (tag >> 2), int.from_bytes(block[at : at + width], "little"), at + width
        copied(out, back, count)
    assert len(out) == size
    return bytes(out)


def of_xerial(data: bytes) -> bytes:
    at, found = 16, b""
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        found += of_snappy(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def of_lz4(data: bytes) -> bytes:
    """One frame, by its format description."""
    flags, at, out = data[4], 7, bytearray()
    at += 8 * bool(flags & 8)
    while size := int.from_bytes(data[at : at + 4], "little"):
        at += 4
        block = data[at : at + (size & 0x7FFFFFFF)]
        at += len(block) + 4 * bool(flags & 16)
        if size >> 31:
            out += block
        else:
            _lz4_block(block, out)
    return bytes(out)


def _lz4_block(block: bytes, out: bytearray) -> None:
    at = 0

    def more(count: int) -> int:
        nonlocal at
        if count == 15:
            while True:
                byte, at = block[at], at + 1
                count += byte
                if byte < 255:
                    break
        return count

    while at < len(block):
        token, at = block[at], at + 1
        literals = more(token >> 4)
        out += block[at : at + literals]
        at += literals
        if at < len(block):
            back, at = int.from_bytes(block[at : at + 2], "little"), at + 2
            copied(out, back, 4 + more(token & 15))


#: The name of a way to compress → another implementation that decompresses.
OTHERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "snappy": of_snappy,
    "xerial": of_xerial,
    "lz4": of_lz4,
    "zstd": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    "zstd with size": lambda data: zstandard.ZstdDecompressor().decompress(data),
}
EVERY = pytest.mark.parametrize("way", OTHERS)


def batch_of(codec: int, data: bytes) -> RecordBatch:
    return RecordBatch(7, 8, 2, 0, None, codec, 0, len(data), -1, -1, -1, False, False, codec, 0, 0, 0)


PLAIN = st.one_of(
    st.binary(max_size=4000),
    st.tuples(st.binary(min_size=1, max_size=9), st.integers(1, 20_000)).map(lambda some: some[0] * some[1]),
)


@EVERY
@given(PLAIN, st.integers(1, 150_000))
@settings(max_examples=40, deadline=None)
def test_no_more_than_the_limit_and_below_it_what_others_read(way, plain, most):
    """One byte more is an error, that is not damage of the log."""
    codec, compress = CODECS[way]
    data = compress(plain)
    if len(plain) > most:
        with pytest.raises(TooLargeBatch) as caught:
            decompress(data, batch_of(codec, data), most)
        assert (caught.value.base, caught.value.last, caught.value.most) == (7, 8, most)
    else:
        found = decompress(data, batch_of(codec, data), most)
        assert found == plain
        if plain:
            assert found == OTHERS[way](data)


@EVERY
def test_a_bomb_takes_little_memory(way):
    """Many times as large as the limit, which is found out without decompressing all of it."""
    codec, compress = CODECS[way]
    data = compress(bytes(32 * MIB))
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        with pytest.raises(TooLargeBatch):
            decompress(data, batch_of(codec, data), MIB)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
        assert pa.total_allocated_bytes() - before < 4 * MIB
    finally:
        tracemalloc.stop()


@EVERY
def test_a_batch_that_compresses_well_is_read(way):
    """Many times as large as on the wire, and less than the limit."""
    codec, compress = CODECS[way]
    plain = b"0123456789" * MIB
    data = compress(plain)
    assert decompress(data, batch_of(codec, data), 128 * MIB) == plain


@pytest.mark.parametrize("way", ["lz4", "zstd"])
def test_frames_are_counted_together(way):
    """Each of them is small."""
    codec, data = CODECS[way][0], framed(way, bytes(MIB), 16)
    assert decompress(data, batch_of(codec, data), MIB) == bytes(MIB)
    with pytest.raises(TooLargeBatch):
        decompress(data, batch_of(codec, data), MIB - 1)


@given(st.binary(max_size=300), st.sampled_from([1, 2, 3, 4]))
@settings(max_examples=200, deadline=None)
def test_other_bytes_are_damage_or_stay_below_the_limit(data, codec):
    """Whatever sizes they claim."""
    with suppress(Damage):
        assert len(decompress(data, batch_of(codec, data), 1000)) <= 1000
