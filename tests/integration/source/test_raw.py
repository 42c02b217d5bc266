"""Reading by whole record batches on a real broker: the same rows as by a consumer, for what librdkafka writes."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pyarrow as pa
import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.admin.topics import end_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.requests.fetch import FetchConnection
from spark_eos.source import raw
from spark_eos.source.fetching import Fetching
from spark_eos.source.raw import read_raw
from spark_eos.source.schema import arrow_schema
from tests.support.judges.consumer_rows import by_consumer
from tests.support.queries.transactions import write_in_turn, write_rows
from tests.support.runs.case_cover import one_for_every_day
from tests.support.waiting import TIMEOUT

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def end_of(kafka: KafkaProperties, topic: str) -> int:
    return end_offsets(broker_client(kafka), {topic: [0]}, "read_uncommitted")[topic][0]


def table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, schema=arrow_schema(False)).combine_chunks()


def same_as_by_a_consumer(kafka: KafkaProperties, topic: str, start: int, end: int) -> pa.Table:
    range_ = OffsetRange(topic, 0, start, end)
    rows = table(read_raw(Fetching(broker_client(kafka)), range_))
    assert rows.equals(by_consumer(kafka, range_))
    return rows


@pytest.mark.parametrize("codec", one_for_every_day("the codec of what is read", CODECS))
def test_every_codec(kafka, topic, producer, codec):
    """Batches of many and of one record; whole, and a range that begins and ends inside of batches."""
    name = topic()
    write_rows(producer(compression_type=codec, linger_ms=20), name, 3000)
    write_rows(producer(compression_type=codec, batch_num_messages=1), name, 20)
    assert same_as_by_a_consumer(kafka, name, 0, 3020).num_rows == 3020
    assert same_as_by_a_consumer(kafka, name, 777, 2222)["offset"].to_pylist() == list(range(777, 2222))


def test_transactions(kafka, topic, producer):
    """Committed, aborted, and plain rows between them; the log ends with what was aborted."""
    name = topic()
    write_in_turn(producer, 6, lambda writer, round_: write_rows(writer, name, 30, seed=round_))
    end = end_of(kafka, name)
    rows = same_as_by_a_consumer(kafka, name, 0, end)
    assert rows.num_rows == 6 * 30 + 3 * 60
    begins = random.Random(0).sample(range(end), 5)
    for begin in begins:
        same_as_by_a_consumer(kafka, name, begin, end)
    uncommitted = table(read_raw(Fetching(broker_client(kafka), "read_uncommitted"), OffsetRange(name, 0, 0, end)))
    assert uncommitted.num_rows == 6 * 120


def test_more_than_a_fetch_holds(kafka, topic, producer, monkeypatch):
    """Many fetches, record batches that are larger than one, and ends of fetches inside of batches."""
    name = topic(max_message_bytes=2_000_000)
    large = producer(message_max_bytes=1_500_000, linger_ms=10)
    for size in (300_000, 10, 900_000, 1_400_000, 10):
        large.produce(name, b"x" * size)
    assert large.flush(TIMEOUT) == 0
    write_rows(producer(linger_ms=10), name, 4000)
    monkeypatch.setattr(raw, "FETCH_BYTES", 100_000)
    same_as_by_a_consumer(kafka, name, 0, 4005)


def test_a_range_given_up_half_way(kafka, topic, producer, monkeypatch):
    """Leaves no connection behind, and disturbs no other."""
    name = topic()
    write_rows(producer(batch_num_messages=100), name, 3000)
    monkeypatch.setattr(raw, "FETCH_BYTES", 20_000)
    broker_client(kafka).close()
    opened = []
    make = FetchConnection.__init__
    monkeypatch.setattr(FetchConnection, "__init__", lambda self, *args: opened.append(self) or make(self, *args))
    half = read_raw(Fetching(broker_client(kafka)), OffsetRange(name, 0, 0, 3000))
    next(half)
    half.close()
    assert [connection._socket.fileno() for connection in opened] == [-1]
    same_as_by_a_consumer(kafka, name, 100, 200)
