"""Copies of ranges on a real broker: a plain consumer sees in the target what it sees in the source."""

from __future__ import annotations

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.net.client import broker_client
from spark_eos.source import raw
from spark_eos.source.copying import copy_range
from spark_eos.source.fetching import Fetching
from tests.support.judges.conditions import raises
from tests.support.judges.kafka_view import KafkaView
from tests.support.queries.transactions import TIME, write_rows
from tests.support.runs.case_cover import one_for_every_day
from tests.support.waiting import TIMEOUT, wait_for

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HOUR_MS = 3_600_000


def seen(view: KafkaView, topic: str, start: int = 0, end: int = 1 << 62) -> list[tuple]:
    """Key, value, timestamp and headers of the committed rows of a topic of one partition."""
    rows = (row for row in view.rows(topic) if start <= row.offset < end)
    return [(row.key, row.value, row.timestamp, row.headers) for row in rows]


def offsets(view: KafkaView, topic: str) -> list[int]:
    return [row.offset for row in view.rows(topic)]


# What is copied is what was there


@pytest.mark.usefixtures("none_is_small")
@pytest.mark.parametrize("codec", one_for_every_day("the codec of a copy", CODECS))
def test_every_codec(codec, topic, producer, copy, view, cluster):
    """Of batches of many and of one record. A range that begins and ends inside of batches, in several answers; the
    rest of it, in the same transaction of another producer; Java reads all of it."""
    source, target = topic(), topic()
    write_rows(producer(compression_type=codec, linger_ms=20, batch_size=20_000), source, 3000)
    write_rows(producer(compression_type=codec, batch_num_messages=1), source, 20)
    said = copy(source, 777, 3020, target)
    assert said.rows == 2243
    assert seen(view, target) == seen(view, source, 777)
    assert offsets(view, target) == list(range(2243))
    records = cluster.console_consume(target, max_messages=2243, partition=0)
    assert [(r.timestamp, r.offset) for r in records] == [(row[2], i) for i, row in enumerate(seen(view, target))]


def test_a_compacted_source(topic, producer, copy, view, monkeypatch):
    """Gaps at the begin, in the middle and at the end of batches: the rows that are left have offsets without gaps."""
    source, target = (
        topic(
            cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="100"
        ),
        topic(cleanup_policy="compact"),
    )
    writer = producer(linger_ms=50, compression_type="lz4")
    for i in range(300):
        writer.produce(source, b"v%d" % i, b"same" if i % 7 else b"k%d" % i, timestamp=TIME + i)
    assert writer.flush(TIMEOUT) == 0

    def compacted() -> bool:
        writer.produce(source, b"roll", b"roll")  # an active segment is never compacted
        assert writer.flush(TIMEOUT) == 0
        return len(seen(view, source, 0, 300)) == 44  # each key once

    wait_for(compacted, "the compaction")
    left = offsets(view, source)
    said = copy(source, 0, 300, target)
    assert seen(view, target) == seen(view, source, 0, 300)
    assert offsets(view, target) == list(range(said.rows))
    assert said.rows < len(left) + 1 < 300


def test_a_source_with_times_of_its_broker(topic, producer, copy, view, kafka):
    """What readers of the source see as timestamps stands in the target, where writers give them."""
    source, target = topic(message_timestamp_type="LogAppendTime"), topic()
    write_rows(producer(compression_type="lz4", linger_ms=20), source, 50)
    copy(source, 0, 50, target)
    assert seen(view, target) == seen(view, source)
    assert min(row[2] for row in seen(view, target)) > TIME + 10_000
    (batch,) = raw.read_raw(Fetching(broker_client(kafka)), OffsetRange(target, 0, 0, 50))
    assert set(batch["timestampType"].to_pylist()) == {0}


# In one transaction with other rows


def test_ranges_and_rows_in_one_transaction(topic, producer, begin, commit, view, kafka):
    """In the order in which they were written, whichever way; under sequence numbers without gaps."""
    import pyarrow as pa

    one, other, target = topic(), topic(), topic(3)
    write_rows(producer(linger_ms=10), one, 300)
    write_rows(producer(linger_ms=10), other, 200, seed=2)
    own = begin()
    partition = pa.array([2] * 5, pa.int32())
    own.write(target, 3, value=pa.array([b"before"] * 5), partition=partition)
    copy_range(Fetching(broker_client(kafka)), OffsetRange(one, 0, 10, 300), (target, 2), own)
    own.write(target, 3, value=pa.array([b"between"] * 5), partition=partition)
    copy_range(Fetching(broker_client(kafka)), OffsetRange(other, 0, 0, 200), (target, 2), own)
    commit(own, target)
    rows = [(row.key, row.value) for row in view.rows(target) if row.partition == 2]
    copied = [[row[:2] for row in seen(view, name)] for name in (one, other)]
    assert rows == [(None, b"before")] * 5 + copied[0][10:] + [(None, b"between")] * 5 + copied[1]
    assert own.firsts() == {(target, 2): 0}


# What the target does not take


@pytest.mark.usefixtures("none_is_small")
def test_a_target_that_takes_less(topic, producer, copy, view, cluster):
    """Batches are split, over the same sequence numbers; whole ones before and behind them stay as they are."""
    source, target = topic(), topic(max_message_bytes=20_000)
    write_rows(producer(linger_ms=10, batch_size=5_000), source, 500)
    write_rows(producer(linger_ms=50, batch_size=900_000, compression_type="zstd"), source, 20_000)
    write_rows(producer(linger_ms=10, batch_size=5_000), source, 500)
    copy(source, 0, 21_000, target)
    assert seen(view, target) == seen(view, source)
    assert offsets(view, target) == list(range(21_000))


@pytest.mark.parametrize(
    ("config", "value", "condition", "reason"),
    [
        ({"max_message_bytes": 5_000}, b"b" * 9_000, "EOS_ROW_TOO_LARGE", "1 row(s)"),
        ({"cleanup_policy": "compact"}, b"b", "EOS_ROW_REFUSED", "INVALID_RECORD"),
        ({"message_timestamp_before_max_ms": HOUR_MS}, b"b", "EOS_ROW_REFUSED", "INVALID_TIMESTAMP"),
    ],
    ids=["too large", "no key for a compacted topic", "a time that is too far from now"],
)
def test_rows_that_the_target_does_not_take(config, value, condition, reason, topic, producer, begin, view, kafka):
    """Named, also alone among others, and nothing is visible."""
    source, target = topic(), topic(**config)
    writer = producer(linger_ms=50)
    for each in (b"a", value, b"c"):
        writer.produce(source, each, timestamp=TIME)
    assert writer.flush(TIMEOUT) == 0
    own = begin()
    with raises(condition) as caught:
        copy_range(Fetching(broker_client(kafka)), OffsetRange(source, 0, 0, 3), (target, 0), own)
        own.flush()
    assert reason in f"{caught.value} {caught.value.parameters}"
    own.abort()
    wait_for(lambda: not view.held(target), "the markers")
    assert seen(view, target) == []
