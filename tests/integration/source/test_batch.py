"""``spark.read.format("eos-kafka")``: batches, by Spark."""

from __future__ import annotations

import json

import pytest

from tests.support.queries.source_calls import until_stable
from tests.support.waiting import TIMEOUT

NOON = 1_700_000_000_000


@pytest.fixture
def read(spark, cluster):
    """``read("t", endingOffsets=…)``: the values, sorted."""

    def values(topics: str | None, **options: object) -> list[str]:
        batch = spark.read.format("eos-kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        if topics is not None:
            batch = batch.option("subscribe", topics)
        for key, value in options.items():
            batch = batch.option(key.replace("__", "."), str(value))
        return sorted(row.value.decode() for row in batch.load().collect())

    return values


def test_a_batch_reads_what_is_stable(read, reader, topic, write, transactions):
    """From the beginning to the last stable offset: no aborted rows, no open ones, and nothing behind those."""
    name = topic(2)
    write(name, *"ab")
    write(name, "c", partition=1)
    transactions.abort(name, "aborted", partition=1)
    transactions.producer.begin_transaction()
    transactions.put(name, "open")
    write(name, "behind")
    assert read(name) == ["a", "b", "c"]
    assert read(name, kafka__isolation__level="read_uncommitted") == ["a", "aborted", "b", "behind", "c", "open"]
    transactions.producer.commit_transaction(TIMEOUT)
    until_stable(reader, name, 5)
    assert read(name) == ["a", "b", "behind", "c", "open"]


def test_from_offsets_to_offsets(read, topic, write):
    """As JSON, with earliest and latest; ends are exclusive; a range may be empty."""
    name = topic(3)
    for p in range(3):
        write(name, *(f"{p}{i}" for i in range(4)), partition=p)
    start, end = json.dumps({name: {"0": 1, "1": -2, "2": 4}}), json.dumps({name: {"0": 3, "1": 2, "2": -1}})
    assert read(name, startingOffsets=start, endingOffsets=end) == ["01", "02", "10", "11"]
    assigned = read(None, assign=json.dumps({name: [1]}), minPartitions=3, maxRecordsPerPartition=2)
    assert assigned == ["10", "11", "12", "13"]


def test_from_a_time_to_a_time(read, topic, write):
    """The end is the first record of its time or later, exclusive; where there is none, the end of the log."""
    name = topic(2)
    for minute in range(4):
        write(name, f"0{minute}", timestamp=NOON + minute * 60_000)
    write(name, "10", partition=1, timestamp=NOON)
    write(name, "11", partition=1, timestamp=NOON + 60_000)
    one, three = NOON + 60_000, NOON + 180_000
    assert read(name, startingTimestamp=one, endingTimestamp=three) == ["01", "02", "11"]
    times = json.dumps({name: {"0": NOON, "1": one}}), json.dumps({name: {"0": one, "1": three}})
    assert read(name, startingOffsetsByTimestamp=times[0], endingOffsetsByTimestamp=times[1]) == ["00", "11"]


def test_an_empty_topic_and_headers(spark, read, cluster, topic, write):
    """Spark makes up a partition for a batch of nothing. Headers reach Spark's own rows."""
    name = topic()
    assert read(name) == []
    write(name, "x", headers=[("k", b"v")])
    batch = spark.read.format("eos-kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    (row,) = batch.option("subscribe", name).option("includeHeaders", True).load().collect()
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("k", b"v")]
