"""The source against a real broker: which rows it gives, once and in order, and when it must stop.

Most tests call the reader as Spark does, without Spark; the last ones run streaming queries.
"""

from __future__ import annotations

import datetime
import itertools
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_eos.devcluster import DevCluster
from spark_eos.errors import ConnectionFailed, DataLossError, KafkaError, OptionError, TopicError
from spark_eos.options.parse import stream_options
from spark_eos.source import consumer, watch
from spark_eos.source.planning import OffsetRange, Task
from spark_eos.source.reader import EosKafkaStreamReader
from tests.support.source_calls import (
    Writer,
    delete_before,
    fresh,
    rows,
    run,
    topics,
    until_ends,
    until_new,
    until_stable,
    values,
)
from tests.support.waiting import wait_for

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
    assert producer.flush(10) == 0
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


def test_a_limit_inside_of_the_writers_batches(reader, topic, write):
    """Micro-batches that end inside of the producer's batches."""
    name = topic()
    write(name, *map(str, range(10_000)))
    source = reader(name, maxOffsetsPerTrigger=7000)
    batches, _ = run(source)
    assert [len(batch) for batch in batches] == [0, 7000, 3000]
    assert values(batches) == [str(i) for i in range(10_000)]


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


def test_a_topic_added_to_a_query_is_read_from_its_beginning(reader, topic, write):
    """The checkpoint knows one topic, the new run subscribes to two."""
    old, new = topic(), topic()
    write(old, "a")
    _, at = run(reader(old))
    write(new, "b")
    batches, _ = run(reader(f"{old},{new}"), at)
    assert values(batches) == ["b"]


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
    transactions.producer.commit_transaction(10)
    until_new(source, at)
    batches, _ = run(source, at)
    assert values(batches) == ["inside", "after", "later"]


def test_an_aborted_transaction_lets_the_end_go_on_without_its_rows(reader, topic, write, transactions):
    """And its offsets are no loss."""
    name = topic()
    source = reader(name)
    transactions.producer.begin_transaction()
    transactions.put(name, "inside")
    write(name, "after")
    batches, at = run(source)
    assert values(batches) == []
    transactions.producer.abort_transaction(10)
    until_new(source, at)
    batches, end = run(source, at)
    assert values(batches) == ["after"]
    assert topics(end) == {name: {"0": 3}}


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_ranges_of_aborted_and_control_records_end(reader, topic, transactions, limit):
    """With a limit of 1, most ranges hold nothing but one control record or one aborted record."""
    name = topic()
    for i in range(3):
        transactions.commit(name, f"c{i}")
        transactions.abort(name, f"x{i}", f"y{i}")
    until_stable(reader, name, 15)
    began = time.monotonic()
    batches, end = run(reader(name, maxOffsetsPerTrigger=limit))
    assert values(batches) == ["c0", "c1", "c2"]
    assert topics(end) == {name: {"0": 15}}
    assert time.monotonic() - began < 10


def test_a_tail_of_aborted_records_does_not_wait(reader, topic, transactions):
    """The broker's word that the log ends there is enough; no time-out is involved."""
    name = topic()
    transactions.commit(name, "row")
    transactions.abort(name, *map(str, range(3000)))
    until_stable(reader, name, 3003)
    began = time.monotonic()
    assert values([rows(reader(name), {name: {"0": 0}}, {name: {"0": 3003}})]) == ["row"]
    assert time.monotonic() - began < 2


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


def test_available_now_reads_on_after_micro_batch_0_was_replayed(reader, topic, write):
    """The replayed start equals the offset log: that must not look like the end of the work."""
    name = topic()
    write(name, *"abc")
    crashed = reader(name)
    logged = crashed.latestOffset(crashed.initialOffset(), crashed.getDefaultReadLimit())
    source = fresh(crashed)
    source.prepareForTriggerAvailableNow()
    assert rows(source, source.initialOffset(), logged) == []
    assert values(run(source, logged)[0]) == list("abc")


def test_the_engine_may_ask_for_everything_at_once(reader, topic, write):
    """As Trigger.Once does: one micro-batch, whatever the limit."""
    name = topic()
    write(name, *"abc")
    source = reader(name, maxOffsetsPerTrigger=1)
    start = source.initialOffset()
    assert values([rows(source, start, source.latestOffset(start, ReadAllAvailable()))]) == list("abc")


def test_trigger_once_from_latest_only_records_the_start(reader, topic, write):
    """A replay would begin elsewhere."""
    name = topic()
    source = reader(name, "latest")
    start = source.initialOffset()
    write(name, *"abc")
    until_ends(source, name, 3)
    assert source.latestOffset(start, ReadAllAvailable()) == start


# Replay


@pytest.mark.parametrize("starting", ["latest", "earliest"])
def test_a_replay_of_micro_batch_0_skips_and_repeats_nothing(reader, topic, write, admin, starting):
    """Between the crash and the restart `latest` moves on, and retention moves `earliest`."""
    name = topic()
    write(name, *"ab")
    crashed = reader(name, starting)
    logged = crashed.latestOffset(crashed.initialOffset(), crashed.getDefaultReadLimit())
    write(name, *"cd")
    if starting == "earliest":
        delete_before(admin, name, 1)
    source = fresh(crashed)
    assert rows(source, source.initialOffset(), logged) == []
    if starting == "latest":
        assert values(run(source, logged)[0]) == ["c", "d"]
    else:  # 'a' was promised by the offset log and is gone
        with pytest.raises(DataLossError):
            run(source, logged)


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


# Data loss


def test_records_deleted_before_they_were_read(reader, topic, write, admin):
    """On the driver, before any task."""
    name = topic(2)
    write(name, *"abcdef", partition=1)
    source = reader(name)
    _, at = run(source)
    write(name, *"ghi", partition=1)
    delete_before(admin, name, 8, partition=1)
    source = fresh(source)
    end = source.latestOffset(at, source.getDefaultReadLimit())
    with pytest.raises(DataLossError) as caught:
        source.partitions(at, end)
    assert caught.value.condition == "EOS_SOURCE_DATA_LOSS"
    expected = {"topic": name, "partition": 1, "expected": 6, "found": 8}
    assert caught.value.parameters == expected


def test_records_deleted_between_planning_and_reading(reader, topic, write, admin):
    """In the task; it does not start anywhere else by itself."""
    name = topic()
    write(name, *"abcdef")
    source = reader(name)
    (part,) = source.partitions({name: {"0": 0}}, {name: {"0": 6}})
    delete_before(admin, name, 2)
    with pytest.raises(DataLossError) as caught:
        list(source.read(part))
    assert (caught.value.parameters["expected"], caught.value.parameters["found"]) == (0, 2)


def test_a_topic_created_anew(reader, topic, write, admin, cluster):
    """It ends before the offset that the query has read already."""
    name = topic()
    write(name, *"abc")
    source = reader(name)
    _, at = run(source)
    admin.delete_topics([name])[name].result()
    with pytest.raises(DataLossError, match="the topic was deleted") as gone:
        wait_for(
            lambda: fresh(source).latestOffset(at, source.getDefaultReadLimit()) is None, "a reader that has noticed"
        )
    assert (gone.value.parameters["expected"], gone.value.parameters["found"]) == (3, None)
    cluster.create_topic(name)
    with pytest.raises(DataLossError) as caught:
        fresh(source).latestOffset(at, source.getDefaultReadLimit())
    assert (caught.value.parameters["expected"], caught.value.parameters["found"]) == (3, 0)


def test_a_replay_of_offsets_that_the_log_does_not_have(reader, topic, write):
    """The offset log promises rows up to 9, the topic ends at 3."""
    name = topic()
    write(name, *"abc")
    with pytest.raises(DataLossError) as caught:
        reader(name).partitions({name: {"0": 0}}, {name: {"0": 9}})
    assert (caught.value.parameters["expected"], caught.value.parameters["found"]) == (9, 3)


def test_a_range_that_the_log_does_not_have(reader, topic, write, way):
    """The task has read what there is and says so, after a bounded time."""
    name = topic()
    write(name, *"abc")
    with pytest.raises(DataLossError, match="ends at 3, before 9"):
        list(reader(name).read(Task((OffsetRange(name, 0, 0, 9),))))


def test_a_topic_that_is_no_longer_subscribed_to(reader, topic):
    """What the query has not read of it would be dropped silently."""
    first, second = topic(), topic()
    _, at = run(reader(f"{first},{second}"))
    with pytest.raises(DataLossError, match="'subscribe'.* does not name it any more"):
        run(reader(first), at)


# What must stop


def test_a_range_that_stays_unstable_ends_in_an_error(reader, topic, transactions, way):
    """It is there, but an open transaction hides it: as when a log was restored to an earlier state."""
    name = topic()
    transactions.producer.begin_transaction()
    transactions.put(name, *"abc")
    with pytest.raises(KafkaError) as caught:
        list(reader(name).read(Task((OffsetRange(name, 0, 0, 3),))))
    assert caught.value.condition == "EOS_SOURCE_STALLED"


def test_a_missing_topic_is_named_and_not_created(reader, topic, admin):
    """Asking for it must not bring it about."""
    name = f"missing-{uuid.uuid4().hex}"
    with pytest.raises(TopicError, match=name) as caught:
        reader(f"{topic()},{name}").initialOffset()
    assert caught.value.condition == "EOS_TOPIC_MISSING"
    assert name not in admin.list_topics(timeout=10).topics


def test_unreachable_brokers_are_named_within_a_bounded_time(monkeypatch):
    """With the address and the reason."""
    monkeypatch.setattr(watch, "TIMEOUT_S", 1.0)
    source = EosKafkaStreamReader(stream_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a"}))
    began = time.monotonic()
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1.*refused") as caught:
        source.initialOffset()
    assert caught.value.condition == "EOS_KAFKA_UNREACHABLE"
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("offsets", ['{"T":{"0":7}}', '{"T":{"0":1,"1":1}}', '{"T":{"0":1},"other":{"0":1}}'])
def test_starting_offsets_that_do_not_fit_the_topic(reader, topic, write, offsets):
    """Outside of the partition, a partition too many, a topic too many."""
    name = topic()
    write(name, *"abc")
    with pytest.raises(OptionError) as caught:
        reader(name, offsets.replace("T", name)).initialOffset()
    assert caught.value.condition == "EOS_OPTION_OFFSETS"


def test_a_start_inside_an_open_transaction_waits_for_it(reader, topic, transactions):
    """The stable end lies before the start that the user gave; that is no loss."""
    name = topic()
    transactions.producer.begin_transaction()
    transactions.put(name, *"abc")
    source = reader(name, json.dumps({name: {"0": 2}}))
    batches, at = run(source)
    assert values(batches) == []
    transactions.producer.commit_transaction(10)
    until_new(source, at)
    assert values(run(source, at)[0]) == ["c"]


# Cost


def test_an_idle_stream_asks_the_broker_at_most_every_50_ms(reader, topic, monkeypatch):
    """Spark asks the reader every 10 ms."""
    asked = []
    real = watch.end_offsets
    monkeypatch.setattr(watch, "end_offsets", lambda *args: asked.append(time.monotonic()) or real(*args))
    source = reader(topic())
    _, at = run(source)
    asked.clear()
    for _ in range(100):
        source.latestOffset(at, source.getDefaultReadLimit())
        time.sleep(0.002)
    assert len(asked) > 1
    assert all(later - earlier >= 0.049 for earlier, later in itertools.pairwise(asked))


def test_a_process_keeps_its_consumer(reader, topic, write):
    """Ranges one after the other use one connection; a range that was given up half-way disturbs no other.

    What only librdkafka understands is read by it.
    """
    name = topic(2)
    write(name, *map(str, range(9000)))
    write(name, *"ab", partition=1)
    source = reader(name, kafka__fetch__min__bytes=1)
    consumer._idle_consumers.clear()
    list(source.read(Task((OffsetRange(name, 1, 0, 2),))))
    (kept,) = consumer._idle_consumers.values()
    list(source.read(Task((OffsetRange(name, 0, 0, 5),))))
    assert list(consumer._idle_consumers.values()) == [kept]
    half = source.read(Task((OffsetRange(name, 0, 0, 9000),)))
    next(half)
    half.close()
    assert [len(batch) for batch in source.read(Task((OffsetRange(name, 1, 1, 2),)))] == [1]


# Streaming queries


class Query:
    """A streaming query over the source that collects what it reads, with the id of its micro-batch."""

    def __init__(self, spark, cluster: DevCluster, checkpoint: Path, topics: str, **options: object) -> None:
        self.rows: list[tuple[int, str]] = []
        self.fail_in: int | None = None
        self._arrived = threading.Condition()
        stream = spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        stream = stream.option("subscribe", topics)
        for key, value in options.items():
            stream = stream.option(key, value)
        self.frame = stream.load()
        self._writer = self.frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(self._collect)

    def _collect(self, frame, batch_id: int) -> None:
        if batch_id == self.fail_in:
            raise RuntimeError("the test wants this micro-batch to fail")
        rows = [(batch_id, row.value.decode()) for row in frame.collect()]
        with self._arrived:
            self.rows += rows
            self._arrived.notify_all()

    def start(self, **trigger: object):
        return (self._writer.trigger(**trigger) if trigger else self._writer).start()

    def wait(self, values: set[str], timeout: float = 120.0) -> None:
        with self._arrived:
            assert self._arrived.wait_for(lambda: values <= {value for _, value in self.rows}, timeout), self.rows

    @property
    def values(self) -> list[str]:
        return [value for _, value in self.rows]


@pytest.fixture
def query(spark, cluster, tmp_path) -> Iterator[Callable[..., Query]]:
    yield lambda topics, **options: Query(spark, cluster, tmp_path / "checkpoint", topics, **options)
    for active in spark.streams.active:
        active.stop()


def test_a_query_reads_what_is_stable_and_goes_on_after_a_restart(query, topic, write, transactions):
    """Two topics, a running stream, an open transaction, a stop in between."""
    names = [topic(2), topic(1)]
    write(names[0], "a", partition=1)
    write(names[1], "b")
    first = query(",".join(names), startingOffsets="earliest", maxOffsetsPerTrigger=1)
    running = first.start()
    first.wait({"a", "b"})
    transactions.producer.begin_transaction()
    transactions.put(names[0], "open")
    write(names[0], "hidden")
    write(names[1], "c")
    first.wait({"c"})
    running.processAllAvailable()  # its commit log is written too; otherwise the restart replays 'c', as it should
    running.stop()
    assert sorted(first.values) == ["a", "b", "c"]
    transactions.producer.commit_transaction(10)
    second = query(",".join(names), startingOffsets="earliest")
    running = second.start()
    second.wait({"open", "hidden"})
    running.stop()
    assert second.values == ["open", "hidden"]


def test_the_progress_of_a_query_has_its_lag(query, topic, write, transactions):
    """High watermarks are looked at once a second, so a micro-batch that comes in between reports those of before."""
    name = topic(2)
    watched = query(name, startingOffsets="earliest")
    running = watched.start()
    transactions.producer.begin_transaction()
    transactions.put(name, "open", "too")

    def reported() -> dict:
        write(name, "free", partition=1)
        running.processAllAvailable()
        return json.loads(running.lastProgress["sources"][0]["latestOffset"])

    wait_for(lambda: reported()["#lag"][name]["0"]["high"] == 2, "the lag of both rows")
    assert reported()["#lag"][name]["0"]["stable"] == 0
    assert reported()["#losses"] == 0
    assert set(watched.values) == {"free"}


def test_latest_survives_a_failure_of_micro_batch_0(query, topic, write, tmp_path):
    """The offset log has micro-batch 0, the commit log does not: the state that a kill leaves."""
    name = topic()
    write(name, "old")
    first = query(name, startingOffsets="latest")
    first.fail_in = 0
    with pytest.raises(StreamingQueryException, match="wants this micro-batch to fail"):
        first.start().awaitTermination(120)
    assert (tmp_path / "checkpoint/offsets/0").exists()
    assert not (tmp_path / "checkpoint/commits/0").exists()
    write(name, "between")
    second = query(name, startingOffsets="latest")
    second.fail_in = 1
    with pytest.raises(StreamingQueryException, match="wants this micro-batch to fail"):
        second.start().awaitTermination(120)
    write(name, "later")
    third = query(name, startingOffsets="latest")
    third.start(availableNow=True).awaitTermination(120)
    assert third.rows == [(1, "between"), (2, "later")]


def test_available_now_drains_and_ends(query, topic, write, tmp_path):
    """On a new query, and again on its checkpoint; the offset log has the built-in source's form."""
    name = topic(2)
    write(name, *"abc", partition=1)
    first = query(name, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    assert first.start(availableNow=True).awaitTermination(120)
    assert first.rows == [(1, "a"), (1, "b"), (2, "c")]
    write(name, "d")
    second = query(name)
    assert second.start(availableNow=True).awaitTermination(120)
    assert second.rows == [(3, "d")]
    logged = (tmp_path / "checkpoint/offsets/3").read_text().splitlines()[-1]
    assert topics(json.loads(logged)) == {name: {"0": 1, "1": 3}}


def test_two_sources_in_one_query(spark, query, cluster, topic, write):
    """Each begins where it shall; none takes the other's rows."""
    names = [topic(), topic()]
    write(names[0], "a")
    write(names[1], "b")
    both = query(names[0], startingOffsets="earliest")
    other = query(names[1], startingOffsets="earliest")
    both._writer = both.frame.union(other.frame).writeStream.foreachBatch(both._collect)
    running = both._writer.trigger(availableNow=True).start()
    assert running.awaitTermination(120)
    assert sorted(both.values) == ["a", "b"]


def test_a_query_says_what_is_wrong_before_any_task(spark, query, topic):
    """By `load` where the option alone says so; else the named error reaches whoever waits for the query."""
    before = len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))
    with pytest.raises(StreamingQueryException, match="EOS_TOPIC_MISSING"):
        query("no-such-topic").start().awaitTermination(120)
    with pytest.raises(PySparkException, match="EOS_OPTION_OFFSETS_JSON"):
        query(topic(), startingOffsets='{"a":')
    with pytest.raises(StreamingQueryException, match="EOS_OPTION_BATCH_ONLY"):
        query(topic(), endingTimestamp="5").start().awaitTermination(120)
    with pytest.raises(StreamingQueryException, match="EOS_OPTION_KAFKA_UNKNOWN"):
        query(topic(), **{"kafka.fetch.min.byte": "1"}).start().awaitTermination(120)
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) == before
