"""Transactions of the producer that takes Arrow columns, on a real broker, as other clients see them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.records.headers import encode_headers
from spark_eos.kafka.requests.describe_transactions import describe_transactions
from spark_eos.source.fetching import Fetching
from spark_eos.source.raw import read_raw
from tests.support.queries.transactions import TIME, arrow_producers, commit_as_driver
from tests.support.runs.case_cover import one_for_every_day
from tests.support.waiting import wait_for


@pytest.fixture
def begin(kafka: KafkaProperties) -> Iterator[Callable[..., ArrowProducer]]:
    """See `arrow_producers`."""
    with arrow_producers(kafka) as begin:
        yield begin


def numbers(first: int, count: int) -> pa.Array:
    return pa.array([b"%08d" % i for i in range(first, first + count)], pa.binary())


def a_row(chance: random.Random) -> tuple[bytes | None, bytes | None, int | None]:
    key = chance.choice([None, b"", b"k%d" % chance.randrange(50), chance.randbytes(chance.randrange(300))])
    value = chance.choice([None, b"", chance.randbytes(chance.randrange(20)), b"v" * chance.randrange(20_000)])
    headers = tuple((chance.choice("häö"), chance.choice([None, b"", b"x" * 70])) for _ in range(chance.randrange(3)))
    return key, value, TIME + chance.randrange(10**6), headers


# What is written is what is read


@pytest.mark.parametrize(
    "codec", one_for_every_day("the codec of a transaction", ["none", "gzip", "lz4", "snappy", "zstd"])
)
def test_rows_of_all_kinds(codec, begin, topic, view, kafka):
    """Seen only once committed, by librdkafka's consumer and by our own reader, in the order of each partition."""
    name, chance = topic(3), random.Random(codec)
    producer = begin(compression__type=codec, batch__size=200_000)
    expected: dict[int, list[tuple]] = {0: [], 1: [], 2: []}
    for count in (1, 700, 0, 1500):
        rows = [a_row(chance) for _ in range(count)]
        wanted = [chance.randrange(3) for _ in rows]
        key, value = (pa.array([row[place] for row in rows], pa.binary()) for place in (0, 1))
        time_ms = pa.array([row[2] for row in rows], pa.int64())
        lists = [[{"key": key, "value": value} for key, value in row[3]] for row in rows]
        headers, partition = encode_headers(pa.array(lists, _HEADERS)), pa.array(wanted, pa.int32())
        producer.write(name, 3, key=key, value=value, time_ms=time_ms, partition=partition, headers=headers)
        for partition, row in zip(wanted, rows, strict=True):
            expected[partition].append(row)
    producer.flush()
    assert view.rows(name) == []
    assert len(view.rows(name, committed=False)) == 2201
    commit_as_driver(producer)
    wait_for(lambda: not view.held(name), "the markers")
    seen: dict[int, list[tuple]] = {0: [], 1: [], 2: []}
    for row in view.rows(name):
        seen[row.partition].append((row.key, row.value, row.timestamp, row.headers))
    assert seen == expected
    for partition, rows in expected.items():
        table = pa.Table.from_batches(
            read_raw(Fetching(broker_client(kafka)), OffsetRange(name, partition, 0, len(rows)))
        )
        assert [(r["key"], r["value"]) for r in table.to_pylist()] == [(k, v) for k, v, _, _ in rows]


_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_text_columns_and_the_present_time(begin, topic, view):
    """As Spark's strings come; a null time and none at all are now."""
    name, producer = topic(), begin()
    text = pa.array(["ä", None, ""], pa.large_string())
    producer.write(name, 1, key=text, value=text.cast(pa.string()), time_ms=pa.array([TIME, None, TIME]))
    producer.write(name, 1, value=text)
    producer.flush()
    commit_as_driver(producer)
    rows = wait_for(lambda: view.rows(name), "rows")
    assert [(r.key, r.value) for r in rows[:3]] == [("ä".encode(), "ä".encode()), (None, None), (b"", b"")]
    assert [r.key for r in rows[3:]] == [None] * 3
    assert [r.timestamp == TIME for r in rows] == [True, False, True, False, False, False]
    assert min(rows[1].timestamp, rows[3].timestamp) > TIME


# The transaction


def test_a_transaction_without_rows(begin, client, topic):
    """Leaves nothing; its abort asks nothing of the brokers."""
    producer = begin()
    producer.write(topic(), 1, value=numbers(0, 0))
    producer.flush()
    producer.abort()
    (state,) = describe_transactions(client, [producer.name])
    assert (state.transaction_state, state.producer_epoch) == ("Empty", producer.identity().epoch)


def test_nothing_is_seen_of_what_is_aborted(begin, topic, view):
    """Also when the abort comes while answers are awaited; nobody is held back by it."""
    name, producer = topic(2), begin()
    producer.write(name, 2, value=numbers(10, 200_000))
    producer.abort()
    wait_for(lambda: not view.held(name), "the markers")
    assert view.ends(name) != {(name, 0): 0, (name, 1): 0}
    assert view.rows(name) == []
    assert view.open_transactions(producer.name) == set()
