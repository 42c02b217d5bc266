"""Which partition a row goes to. librdkafka's own choice is taken from its simulated brokers."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.kafka.partitioners import CONSISTENT_RANDOM, PARTITIONERS
from spark_eos.kafka.producer.partitioner import Partitioner
from tests.support.waiting import TIMEOUT

KEYS = [None, b"", *(f"key {n}".encode() * (n % 4) for n in range(60)), "größe".encode(), bytes(range(256)) * 5]
PARTITIONS = 4  # of a topic of the simulated brokers


def choose(partitioner: Partitioner, keys: pa.Array) -> list[int]:
    """The partition of each row, where the user chooses none."""
    return partitioner.choose(keys, pa.nulls(len(keys), pa.int32())).tolist()


def librdkafkas(name: str, keys: list[bytes | None]) -> list[int]:
    """The partition of each row as librdkafka's producer chooses it."""
    config = {"test.mock.num.brokers": 1, "partitioner": name, "sticky.partitioning.linger.ms": 0}
    producer = Producer(config)
    assert len(producer.list_topics("t", timeout=TIMEOUT).topics["t"].partitions) == PARTITIONS
    chosen = [-1] * len(keys)

    def delivered(place: int) -> Callable[..., None]:
        return lambda error, message: chosen.__setitem__(place, -1 if error else message.partition())

    for place, key in enumerate(keys):
        producer.produce("t", b"", key, on_delivery=delivered(place))
    assert producer.flush(TIMEOUT) == 0
    return chosen


@pytest.mark.parametrize("name", sorted(PARTITIONERS - {"random"}))
def test_keys_go_where_librdkafka_puts_them(name):
    """Null and empty keys, too, where they may not go anywhere."""
    theirs = librdkafkas(name, KEYS)
    ours = choose(Partitioner(PARTITIONS, name), pa.array(KEYS, pa.binary()))
    anywhere = {key for key in (None, b"") if name.endswith("_random") and (key is None or name == CONSISTENT_RANDOM)}
    assert [place for place, key in enumerate(KEYS) if key not in anywhere and ours[place] != theirs[place]] == []
    assert len({place for place, key in zip(ours, KEYS, strict=True) if key in anywhere}) == bool(anywhere)
    assert len(set(ours)) == PARTITIONS


@given(
    st.lists(st.none() | st.binary(max_size=5), min_size=1), st.integers(1, 7), st.sampled_from(sorted(PARTITIONERS))
)
def test_every_row_gets_one_of_the_partitions(keys, count, name):
    """And the same key the same one within a call, except where chance decides."""
    chosen = Partitioner(count, name).choose(pa.array(keys, pa.binary()), pa.nulls(len(keys), pa.int32()))
    assert chosen.dtype == np.int32
    assert set(chosen.tolist()) <= set(range(count))
    of_key = dict(zip(keys, chosen.tolist(), strict=True))
    assert chosen.tolist() == [of_key[key] for key in keys]


@pytest.mark.parametrize("name", ["random", "consistent_random", "murmur2_random", "fnv1a_random"])
def test_rows_without_keys_go_round(name):
    """One partition after the other, wherever the first is."""
    partitioner = Partitioner(3, name)
    calls = [set(choose(partitioner, pa.nulls(4, pa.binary()))) for _ in range(3)]
    assert sorted(calls, key=min) == [{0}, {1}, {2}]


def test_rows_without_keys_among_others_go_round():
    """One partition after the other, and no row with a key goes with them."""
    keys = pa.array([b"a", None, b""], pa.binary())
    partitioner = Partitioner(3, "murmur2_random")
    calls = [choose(partitioner, keys) for _ in range(3)]
    assert sorted(of_null for _, of_null, _ in calls) == [0, 1, 2]
    assert len({(of_a, of_empty) for of_a, _, of_empty in calls}) == 1


@pytest.mark.parametrize("name", ["consistent", "murmur2", "fnv1a"])
def test_without_any_key_every_row_has_the_empty_key(name):
    """Where a null key counts as one."""
    partitioner = Partitioner(5, name)
    assert choose(partitioner, pa.nulls(2, pa.binary())) == choose(partitioner, pa.array([b"", None], pa.binary()))


def test_random_pays_no_heed_to_keys():
    """Each call goes to one partition, whatever its keys are."""
    keys = pa.array([b"a", b"b", b"c", b"d"], pa.binary())
    partitioner = Partitioner(2, "random")
    assert sorted([set(choose(partitioner, keys)) for _ in range(2)], key=min) == [{0}, {1}]


def test_the_users_own_choice():
    """Goes before the key's; null leaves it to the key."""
    keys = pa.array([b"a", b"b", None, b""], pa.binary())
    every = pa.array([3, 2, 1, 0], pa.int32())
    some = pa.array([None, 2, 1, None], pa.int32())
    partitioner = Partitioner(4, CONSISTENT_RANDOM)
    assert partitioner.choose(keys, every).tolist() == [3, 2, 1, 0]
    chosen = partitioner.choose(keys, some)
    assert chosen[:3].tolist() == [crc32(b"a") % 4, 2, 1]
    assert chosen.dtype == np.int32
    nothing_given = choose(partitioner, pa.nulls(2, pa.binary()))
    assert nothing_given[0] == nothing_given[1]
