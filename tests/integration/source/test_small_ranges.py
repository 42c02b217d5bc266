"""Tasks of many small ranges: one request for all of them, and the same rows as one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.admin.topics import end_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.requests.fetch import FetchConnection
from spark_eos.source import small_ranges
from spark_eos.source.fetching import Fetching
from spark_eos.source.range_math import RangeTask
from spark_eos.source.schema import arrow_schema
from spark_eos.source.task import read_range, read_task
from tests.support.queries.transactions import write_in_turn
from tests.support.waiting import TIMEOUT

PARTITIONS = 12


@pytest.fixture(autouse=True)
def any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is given up because the machine is busy: the ranges would be read alone."""
    monkeypatch.setattr(small_ranges, "_ANSWER_S", TIMEOUT)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each request to fetch, how many partitions it was for."""
    requests: list[int] = []
    ask = FetchConnection._ask

    def noted(self: FetchConnection, version: int, limits: bytes, topics: list, *rest: str) -> None:
        requests.append(sum(len(partitions) for _, partitions in topics))
        ask(self, version, limits, topics, *rest)

    monkeypatch.setattr(FetchConnection, "_ask", noted)
    return requests


def write(producer: Producer, topic: str, partition: int, count: int, size: int = 20) -> None:
    chance = random.Random(partition)
    for i in range(count):
        key = chance.choice([None, b"", b"key %d" % i])
        headers = [("n", b"%d" % i)] if i % 3 else None
        producer.produce(topic, bytes(size), key, partition, headers=headers)
    assert producer.flush(TIMEOUT) == 0


def ranges_of(kafka: KafkaProperties, *topics: str) -> tuple[OffsetRange, ...]:
    ends = end_offsets(broker_client(kafka), {topic: range(PARTITIONS) for topic in topics})
    return tuple(OffsetRange(t, p, 0, end) for t in topics for p, end in sorted(ends[t].items()) if end)


def table(batches: Iterator[pa.RecordBatch], headers: bool = False) -> pa.Table:
    return pa.Table.from_batches(batches, schema=arrow_schema(headers)).combine_chunks()


def one_by_one(fetching: Fetching, ranges: tuple[OffsetRange, ...]) -> pa.Table:
    batches = (batch for range_ in ranges for batch in read_range(fetching, range_))
    return table(batches, fetching.include_headers)


@contextmanager
def compared(fetching: Fetching, ranges: tuple[OffsetRange, ...], asked: list[int]) -> Iterator[list[pa.RecordBatch]]:
    """The batches of a task, which has the rows that its ranges have one by one; ``asked`` is then of the task."""
    expected = one_by_one(fetching, ranges)
    asked.clear()
    found = list(read_task(fetching, RangeTask(ranges)))
    assert table(iter(found), fetching.include_headers).equals(expected)
    yield found


def test_all_ranges_in_one_request(kafka, topic, producer, asked):
    """Of two topics; within record batches and beyond aborted transactions; one Arrow batch for Spark."""
    plain, mixed = topic(PARTITIONS), topic(PARTITIONS)
    for partition in range(PARTITIONS):
        write(producer(compression_type="lz4"), plain, partition, partition % 5 * 7)
    write_in_turn(producer, 4, lambda writer, round_: [write(writer, mixed, p, 3) for p in range(PARTITIONS)])
    ranges = tuple(
        OffsetRange(r.topic, r.partition, r.start + r.partition % 3, r.end) for r in ranges_of(kafka, plain, mixed)
    )
    for headers in (False, True):
        with compared(Fetching(broker_client(kafka), include_headers=headers), ranges, asked) as batches:
            assert asked == [len(ranges)]
            assert len(batches) == 1


def test_what_does_not_fit_is_read_alone(kafka, topic, producer, asked):
    """Partitions that come without records, or with a part of theirs, as others have used up the request's bytes."""
    name = topic(PARTITIONS)
    for partition in range(PARTITIONS):
        write(producer(batch_num_messages=5), name, partition, 40, size=5_000)
    small = KafkaProperties({**kafka, "fetch.max.bytes": "400000"})
    with compared(Fetching(broker_client(small)), ranges_of(kafka, name), asked):
        alone = asked.count(1)
        assert asked[0] == PARTITIONS
        assert 0 < alone < 3 * PARTITIONS
        assert len(asked) == 1 + alone


def test_a_deep_backlog_behind_small_ranges(kafka, topic, producer, asked):
    """Of each partition about as much is asked for as is wanted, so that there is room for all of them.

    A record batch begins where each range does, and none ends within it, whatever else the machine does.
    """
    name = topic(PARTITIONS)
    for partition in range(PARTITIONS):
        writer = producer(batch_num_messages=20, linger_ms=60_000)
        for count in (100, 20, 680):
            write(writer, name, partition, count, size=1_000)
    ranges = tuple(OffsetRange(name, partition, 100, 105) for partition in range(PARTITIONS))
    with compared(Fetching(broker_client(kafka)), ranges, asked) as batches:
        assert asked == [PARTITIONS]
        assert len(batches) == 1
