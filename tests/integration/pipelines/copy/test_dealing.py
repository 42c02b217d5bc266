"""Copies whose partitions are chosen by the keys: where a producer puts them, in order, and again so in a replay."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka import Producer

from tests.integration.pipelines.copy.test_replays import lose
from tests.support.judges.kafka_view import Row
from tests.support.queries.copies import CopiedFrom
from tests.support.waiting import TIMEOUT, wait_for

KEYS = [b"k%d" % i for i in range(60)]


@pytest.fixture
def by_key(spark, view, topic, tmp_path):
    """A copy from three partitions to five."""
    query = CopiedFrom(spark, view, tmp_path / uuid.uuid4().hex, topic(3), topic(5))
    query.more = {"partition": "key"}
    yield query
    for running in spark.streams.active:
        running.stop()


def feed(write, query: CopiedFrom) -> None:
    """Rows of each key, in one of the partitions; timestamps, headers, and rows without a key or a value."""
    before = int(time.time() * 1000) - 60_000
    for n in range(4):
        for p in range(3):
            for key in KEYS[p::3]:
                write(query.source, b"%d" % n, partition=p, key=key, timestamp=before + n, headers=[("h", key)])
            write(query.source, None, b"no key", partition=p)


def fields(row: Row) -> tuple:
    return row.key, row.value, row.timestamp, row.headers


def placed(servers: str, topic: str) -> dict[bytes, int]:
    """The partition of each key, by librdkafka, as Java clients choose it."""
    found: dict[bytes, int] = {}
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    for key in KEYS:
        producer.produce(topic, b"", key, on_delivery=lambda error, m: found.update({m.key(): m.partition()}))
    assert producer.flush(TIMEOUT) == 0
    return found


def check(query: CopiedFrom, partitions: dict[bytes, int]) -> None:
    """Every row once, in the order of its key, where its key belongs."""
    source, target = query.view.rows(query.source), query.rows()
    assert sorted(map(repr, map(fields, target))) == sorted(map(repr, map(fields, source)))
    for key in KEYS:
        own = [row for row in target if row.key == key]
        assert [fields(row) for row in own] == [fields(row) for row in source if row.key == key]
        assert {row.partition for row in own} == {partitions[key]}


def test_keys_choose_the_partitions(by_key, topic, write, view, tmp_path):
    """Of a target with any number of partitions; what is lost is dealt again in the same way, whatever else was."""
    partitions = placed(view.bootstrap_servers, topic(5))
    assert set(partitions.values()) == set(range(5))
    feed(write, by_key)
    lose(by_key, 1, tmp_path)
    wait_for(lambda: not view.held(by_key.target), "the markers")
    by_key.more = {}
    assert "the transform: decided partition=key, now none" in by_key.stopped_by("EOS_REPLAY_DIVERGED")
    by_key.more = {"partition": "key"}
    by_key.run()
    check(by_key, partitions)
