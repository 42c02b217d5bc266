"""Which partition a row goes to. tests/integration/kafka/test_raw_producer.py holds that it is librdkafka's choice."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.kafka.producer.partitioner import Partitioner


@given(st.lists(st.none() | st.binary(max_size=5), min_size=1), st.integers(1, 7))
def test_keys_decide_and_the_rest_stays_together(keys, count):
    """The same key always goes to the same partition; null and empty keys of one call to one."""
    chosen = Partitioner(count).choose(pa.array(keys, pa.binary()), None, len(keys)).tolist()
    assert [p for key, p in zip(keys, chosen, strict=True) if key] == [crc32(key) % count for key in keys if key]
    assert len({p for key, p in zip(keys, chosen, strict=True) if not key}) <= 1
    assert set(chosen) <= set(range(count))


def test_rows_without_keys_go_round():
    """One partition after the other, wherever the first is."""
    partitioner = Partitioner(3)
    calls = [set(partitioner.choose(key, None, 4).tolist()) for key in (None, pa.nulls(4), None)]
    assert sorted(calls, key=min) == [{0}, {1}, {2}]


def test_the_users_own_choice():
    """Goes before the key's; null leaves it to the key."""
    keys = pa.array([b"a", b"b", None, b""], pa.binary())
    every = pa.array([3, 2, 1, 0], pa.int32())
    some = pa.array([None, 2, 1, None], pa.int32())
    partitioner = Partitioner(4)
    assert partitioner.choose(keys, every, 4).tolist() == [3, 2, 1, 0]
    chosen = partitioner.choose(keys, some, 4)
    assert chosen[:3].tolist() == [crc32(b"a") % 4, 2, 1]
    assert chosen.dtype == np.int32
    nothing_given = partitioner.choose(None, pa.nulls(2, pa.int32()), 2)
    assert nothing_given[0] == nothing_given[1]
