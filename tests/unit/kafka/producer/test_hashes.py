"""Hash functions over columns of keys, against those of kafka-python, zlib and a plain loop."""

from __future__ import annotations

import random
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from spark_eos.kafka.producer.hashes import crc32_of, fnv1a, murmur2


def plain_fnv1a(key: bytes) -> int:
    """As librdkafka computes it, byte by byte."""
    value = 2166136261
    for byte in key:
        value = (value ^ byte) * 16777619 % 2**32
    return value if value < 2**31 else 2**32 - value


EACH = pytest.mark.parametrize(
    ("hashes", "plain"),
    [
        (murmur2, lambda key: murmur2_of_kafka_python(key) & 0xFFFFFFFF),
        (fnv1a, plain_fnv1a),
        (crc32_of, crc32),
    ],
    ids=["murmur2", "fnv1a", "crc32"],
)


#: As most topics have no others: they are hashed without a look at where each of them begins.
OF_ONE_LENGTH = st.integers(1, 40).flatmap(
    lambda length: st.lists(st.binary(min_size=length, max_size=length), min_size=1, max_size=80)
)


@EACH
@given(keys=st.lists(st.binary(max_size=40)) | OF_ONE_LENGTH, skipped=st.integers(0, 5))
def test_a_column_is_hashed_as_its_keys_one_by_one(hashes, plain, keys, skipped):
    """Of all lengths together, or of one; also where the column begins within its buffers."""
    column = pa.array(keys, pa.binary()).slice(skipped)
    assert hashes(column).tolist() == [plain(key) for key in keys[skipped:]]


@EACH
@pytest.mark.parametrize("long", [1, 64, 65, 200])
def test_keys_that_are_much_longer_than_the_others(hashes, plain, long):
    """A few are hashed one by one, many at once; at the limit and on both sides of it."""
    rng = random.Random(long)
    keys = [rng.randbytes(rng.randrange(9)) for _ in range(300)]
    keys += [rng.randbytes(rng.randrange(500, 600)) for _ in range(long)]
    rng.shuffle(keys)
    assert hashes(pa.array(keys, pa.binary())).tolist() == [plain(key) for key in keys]
