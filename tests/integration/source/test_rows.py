"""Which rows the source gives, once and in order. The reader is called as Spark does, without Spark."""

from __future__ import annotations

import datetime
import json
import time

from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from spark_eos.source import raw, watch
from spark_eos.spark.versions import ReadAllAvailable
from tests.support.queries.source_calls import (
    Writer,
    fresh,
    rows,
    run,
    topics,
    until_new,
    until_stable,
    values,
)
from tests.support.waiting import PROGRAM_S, TIMEOUT, wait_for

# Which rows


def test_micro_batch_0_records_the_start_and_reads_nothing(reader, topic, write):
    """Then every row comes, once and in order."""
    name = topic()
    write(name, *map(str, range(5)))
    batches, end = run(reader(name))
    assert [len(batch) for batch in batches] == [0, 5]
    assert values(batches) == list("01234")
    assert topics(end) == {name: {"0": 5}}


def test_starting_offsets(reader, topic, write):
    """Earliest, latest, and JSON with numbers, -2 and -1."""
    name = topic(3)
    for p in range(3):
        write(name, *(f"{p}.{i}" for i in range(4)), partition=p)
    assert len(values(run(reader(name, "earliest"))[0])) == 12
    assert values(run(reader(name, "latest"))[0]) == []
    assert values(run(reader(name, json.dumps({name: {"0": 3, "1": -2, "2": -1}})))[0]) == [
        "0.3",
        "1.0",
        "1.1",
        "1.2",
        "1.3",
    ]


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


def test_a_limit_gives_every_row_once(reader, topic, write):
    """Over several topics and partitions, and some of them empty."""
    names = [topic(4), topic(2)]
    for p, count in enumerate([50, 0, 7, 1]):
        write(names[0], *(f"a{p}.{i}" for i in range(count)), partition=p)
    write(names[1], *(f"b.{i}" for i in range(20)), partition=1)
    batches, _ = run(reader(",".join(names), maxOffsetsPerTrigger=10))
    assert max(map(len, batches)) <= 10 + 6
    assert len(batches) > 6
    assert len(values(batches)) == len(set(values(batches))) == 78


def test_partitions_added_later_are_read_from_their_beginning(reader, topic, write, admin, cluster, monkeypatch):
    """They enter the offset log first; a replay of that micro-batch reads nothing twice."""
    monkeypatch.setattr(watch, "_TOPICS_S", 0.0)
    name = topic(1)
    write(name, "old")
    source = reader(name)
    _, at = run(source)
    admin.create_partitions([NewPartitions(name, 3)])[name].result()
    cluster.wait_for_leaders(name, 3)
    Writer(cluster, transactional=False).put(name, "new", partition=2)
    wait_for(lambda: len(source.latestOffset(at, source.getDefaultReadLimit())[name]) == 3, "the new partitions")
    batches, end = run(source, at)
    assert [values([batch]) for batch in batches] == [[], ["new"]]
    assert topics(end) == {name: {"0": 1, "1": 0, "2": 1}}


# Transactions


def test_an_open_transaction_holds_the_end(reader, topic, write, transactions):
    """Nothing at or after its first record is read, over any number of micro-batches, until it is committed."""
    name = topic()
    source = reader(name)
    write(name, "before")
    transactions.producer.begin_transaction()
    transactions.put(name, "inside")
    write(name, "after")
    batches, at = run(source)
    assert values(batches) == ["before"]
    write(name, "later")
    assert run(source, at) == ([], at)
    transactions.producer.commit_transaction(TIMEOUT)
    until_new(source, at)
    batches, _ = run(source, at)
    assert values(batches) == ["inside", "after", "later"]


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


# AvailableNow


def test_available_now_ends_where_the_topic_ended_when_it_began(reader, topic, write):
    """What is written meanwhile is left for the next run."""
    name = topic(2)
    write(name, *"abc")
    source = reader(name, maxOffsetsPerTrigger=2)
    source.prepareForTriggerAvailableNow()
    write(name, *"def", partition=1)
    batches, at = run(source)
    assert values(batches) == list("abc")
    assert values(run(fresh(source), at)[0]) == list("def")


def test_the_engine_may_ask_for_everything_at_once(reader, topic, write):
    """As Trigger.Once does: one micro-batch, whatever the limit."""
    name = topic()
    write(name, *"abc")
    source = reader(name, maxOffsetsPerTrigger=1)
    start = source.initialOffset()
    assert values([rows(source, start, source.latestOffset(start, ReadAllAvailable()))]) == list("abc")


# Replay


def test_a_replay_reads_the_same_rows(reader, topic, write, transactions):
    """Whatever was written, committed or aborted since."""
    name = topic(2)
    write(name, *map(str, range(100)), partition=1)
    transactions.commit(name, *"abc")
    source = reader(name)
    until_stable(reader, name, 4)
    _, end = run(source)
    write(name, *"later")
    transactions.abort(name, *"never")
    zero = {name: {"0": 0, "1": 0}}
    assert rows(fresh(source), zero, end) == rows(source, zero, end)
