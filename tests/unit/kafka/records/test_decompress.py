"""Decompression has a limit, whatever the codec, and whatever the bytes claim."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.kafka.records.batches import Damage, RecordBatch, TooLargeBatch, decompress
from tests.support.judges.record_batches import CODECS

MIB = 1024 * 1024


def framed(codec: str, data: bytes, pieces: int) -> bytes:
    """In so many frames, one after the other, without the size of the content."""
    cuts = [len(data) * i // pieces for i in range(pieces + 1)]
    return b"".join(CODECS[codec][1](data[start:stop]) for start, stop in pairwise(cuts))


EVERY = pytest.mark.parametrize("way", [way for way in CODECS if way])


def batch_of(codec: int, data: bytes) -> RecordBatch:
    return RecordBatch(7, 8, 2, 0, None, codec, 0, len(data), -1, -1, -1, False, False, codec, 0, 0, 0)


PLAIN = st.one_of(
    st.binary(max_size=4000),
    st.tuples(st.binary(min_size=1, max_size=9), st.integers(1, 20_000)).map(lambda some: some[0] * some[1]),
)


@EVERY
@given(PLAIN, st.integers(1, 150_000))
def test_no_more_than_the_limit_and_below_it_all_of_it(way, plain, most):
    """One byte more is an error, that is not damage of the log."""
    codec, compress = CODECS[way]
    data = compress(plain)
    if len(plain) > most:
        with pytest.raises(TooLargeBatch) as caught:
            decompress(data, batch_of(codec, data), most)
        assert (caught.value.base, caught.value.last, caught.value.most) == (7, 8, most)
    else:
        assert decompress(data, batch_of(codec, data), most) == plain


@EVERY
def test_a_bomb_takes_little_memory(way):
    """Many times as large as the limit, which is found out without decompressing all of it."""
    codec, compress = CODECS[way]
    data = compress(bytes(8 * MIB))
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        with pytest.raises(TooLargeBatch):
            decompress(data, batch_of(codec, data), MIB)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
        assert pa.total_allocated_bytes() - before < 4 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("way", ["lz4", "zstd"])
def test_frames_are_counted_together(way):
    """Each of them is small."""
    codec, data = CODECS[way][0], framed(way, bytes(MIB), 16)
    assert decompress(data, batch_of(codec, data), MIB) == bytes(MIB)
    with pytest.raises(TooLargeBatch):
        decompress(data, batch_of(codec, data), MIB - 1)


@given(st.binary(max_size=300), st.sampled_from([1, 2, 3, 4]))
def test_other_bytes_are_damage_or_stay_below_the_limit(data, codec):
    """Whatever sizes they claim."""
    with suppress(Damage):
        assert len(decompress(data, batch_of(codec, data), 1000)) <= 1000
