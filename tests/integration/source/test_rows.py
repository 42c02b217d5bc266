"""Which rows the source gives, once and in order. The reader is called as Spark does, without Spark."""

from __future__ import annotations

import datetime
import time

from confluent_kafka import Producer

from spark_eos.source import raw
from spark_eos.spark.versions import ReadAllAvailable
from tests.support.queries.source_calls import rows, run, topics, until_stable, values
from tests.support.waiting import PROGRAM_S, TIMEOUT


def test_columns(reader, topic, cluster):
    """Null and empty keys and values, large ones, the timestamp of the record and its type, from two topics."""
    created, appended = topic(2), topic(1, message_timestamp_type="LogAppendTime")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    large = bytes(range(256)) * 3000
    for key, value in [(None, None), (b"", b""), (b"k", None), (None, b"v"), (b"k" * 70_000, large)]:
        producer.produce(created, value, key, partition=1, timestamp=1_700_000_000_123)
    producer.produce(appended, b"x", timestamp=1)
    assert producer.flush(TIMEOUT) == 0
    (_, batch), _ = run(reader(f"{created},{appended}"))
    rows = sorted(batch, key=lambda row: (row["topic"] == appended, row["offset"]))
    assert [(r["key"], r["value"]) for r in rows[:5]] == [
        (None, None),
        (b"", b""),
        (b"k", None),
        (None, b"v"),
        (b"k" * 70_000, large),
    ]
    assert [(r["topic"], r["partition"], r["offset"]) for r in rows] == [(created, 1, i) for i in range(5)] + [
        (appended, 0, 0)
    ]
    stamp = datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=datetime.UTC)
    assert {(r["timestamp"], r["timestampType"]) for r in rows[:5]} == {(stamp, 0)}
    assert rows[5]["timestampType"] == 1
    assert rows[5]["timestamp"].year > 2023


def test_ranges_of_aborted_and_control_records_end(reader, topic, transactions, monkeypatch):
    """With a limit of 1, most ranges hold nothing but one control record or one aborted record."""
    name = topic()
    for i in range(3):
        transactions.commit(name, f"c{i}")
        transactions.abort(name, f"x{i}", f"y{i}")
    until_stable(reader, name, 15)
    monkeypatch.setattr(raw, "_SHORT_STALL_S", PROGRAM_S)
    began = time.monotonic()
    batches, end = run(reader(name, maxOffsetsPerTrigger=1))
    assert values(batches) == ["c0", "c1", "c2"]
    assert topics(end) == {name: {"0": 15}}
    assert time.monotonic() - began < TIMEOUT


def test_the_engine_may_ask_for_everything_at_once(reader, topic, write):
    """As Trigger.Once does: one micro-batch, whatever the limit."""
    name = topic()
    write(name, *"abc")
    source = reader(name, maxOffsetsPerTrigger=1)
    start = source.initialOffset()
    assert values([rows(source, start, source.latestOffset(start, ReadAllAvailable()))]) == list("abc")
