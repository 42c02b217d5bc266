"""The sink on a real broker: what it writes, when it becomes visible, and what a replay does.

What needs a process to be killed, or two of them, is in tests/chaos.
"""

from __future__ import annotations

import datetime
import uuid
from collections import Counter
from pathlib import Path
from zlib import crc32

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.judges.kafka_view import KafkaView, write
from tests.support.queries.sink_queries import Sink, ended_by, kafka_frame
from tests.support.runs.case_cover import one_for_every_day
from tests.support.spark.session_faults import armed
from tests.support.spark.spark_versions import needs_admission_control
from tests.support.waiting import TIMEOUT, wait_for

FULL = (
    "key string, value string, topic string, partition int, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)


# What is written


def test_every_column_reaches_kafka(files, sink, topic, view):
    """As a consumer sees it: in the partition, with headers, at the time, in the topic that the row says."""
    out = topic(3, **{"retention.ms": -1})  # else the broker, which looks now and then, takes the row of 2024 away
    at = datetime.datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=datetime.UTC)
    headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    sink().run(files(FULL).add([("k", "v", out, 2, at, headers), (None, None, out, 1, None, None)]).stream())
    first, second = sorted(view.rows(out), key=lambda row: -row.partition)
    assert (first.partition, first.key, first.value) == (2, b"k", b"v")
    assert first.headers == (("a", b"1"), ("a", None))
    assert first.timestamp == int(at.timestamp() * 1000)
    assert (second.partition, second.key, second.value, second.headers) == (1, None, None, ())
    now = datetime.datetime.now().timestamp() * 1000
    assert now - 600_000 < second.timestamp <= now


@pytest.mark.parametrize("codec", one_for_every_day("the codec that Java reads", ["gzip", "lz4", "snappy", "zstd"]))
def test_java_reads_headers_and_every_codec(codec, cluster, files, sink, topic):
    """As they were given, in record batches of our own."""
    headers = [{"key": "trace", "value": b"7f"}, {"key": "none", "value": None}]
    out, rows = topic(), [(f"row {n}" * 50, headers if n % 2 else None) for n in range(40)]
    source = files("value string, headers array<struct<key:string,value:binary>>").add(rows)
    sink(topic=out, kafka__compression__type=codec).run(source.stream())
    seen = [(row.value, row.headers) for row in cluster.console_consume(out, max_messages=len(rows))]
    assert seen == [(value, "trace:7f,none:\x1a" if own else "") for value, own in rows]


def test_complete_mode_writes_the_whole_result_for_each_batch(files, sink, topic, view):
    """After a shuffle, from state that Spark keeps."""
    out = topic()
    source = files()
    counted = source.stream().groupBy("value").count().selectExpr("value AS key", "cast(count AS string) AS value")
    query = sink(topic=out)
    results = []
    for rows in (["a", "b", "a"], ["b", "c"]):
        before = view.ends(out)[out, 0]
        query.run(source.add(rows).stream() and counted, "complete")
        results.append({row.key: row.value for row in view.rows(out) if row.offset >= before})
    assert results == [{b"a": b"2", b"b": b"1"}, {b"a": b"2", b"b": b"2", b"c": b"1"}]


def test_a_query_keeps_the_partitioner_that_it_began_with(files, sink, topic, view):
    """As one from before murmur2 was the default: rows of a key that has a partition do not go to another one."""
    out, keys = topic(4), [f"key {i}".encode() for i in range(40)]
    source = files("key binary, value string")
    sink(topic=out, kafka__partitioner="consistent_random").run(source.add([(key, "v") for key in keys]).stream())
    sink(topic=out).run(source.add([(key, "w") for key in keys]).stream())  # the same checkpoint
    assert sorted({(row.key, row.partition) for row in view.rows(out)}) == sorted((k, crc32(k) % 4) for k in keys)
    assert len(view.rows(out)) == 80


# Sources, triggers, tasks


def test_several_queries_of_one_session_at_once(files, sink, topic, view):
    """They share processes, connections and the ledger, but no transaction."""
    outs = [topic(2) for _ in range(3)]
    sinks = [sink(f"query-{i}", topic=out) for i, out in enumerate(outs)]
    inputs = [files(name=f"input-{i}").add(*[[f"{i}.{t}.{n}" for n in range(50)] for t in range(2)]) for i in range(3)]
    running = [one.start(source.stream()) for one, source in zip(sinks, inputs, strict=True)]
    for query in running:
        assert query.awaitTermination(TIMEOUT)
    for i, out in enumerate(outs):
        assert Counter(view.values(out)) == Counter(f"{i}.{t}.{n}" for t in range(2) for n in range(50))


def test_tasks_without_rows_leave_no_transaction(spark, files, sink, topic, view):
    """An empty transaction cannot be committed; there is one record and one marker, and nothing else."""
    out = topic()
    query = sink(topic=out)
    query.run(files().add(["only"]).stream().repartition(4, "value"))
    assert view.ends(out) == {(out, 0): 2}
    assert set(task_transactions(view, query).values()) <= {"Empty", "CompleteCommit"}
    assert list(task_transactions(view, query).values()).count("CompleteCommit") == 1


def task_transactions(view: KafkaView, query: Sink) -> dict[str, str]:
    """The states of the transactional ids of the query's tasks."""
    assert query.id is not None
    return {name: state for name, state in view.transactions(query.id).items() if not name.endswith("-ledger")}


# One decision


@needs_admission_control
def test_offsets_and_rows_become_durable_by_one_decision(spark, cluster, sink, topic, view, tmp_path):
    """Before it the group has nothing; after it the group has all, though no transaction is ended yet."""
    source, out, group = topic(2), topic(1), f"group-{uuid.uuid4()}"
    write(cluster.bootstrap_servers, source, [(0, "a"), (1, "b"), (1, "c")])
    query = sink(topic=out, offsets__group__id=group)

    # Micro-batch 0 only notes where the source begins.
    with armed(spark, "commit.verified=hold@2, commit.decided=hold@2", tmp_path / "faults") as before:
        started = query.start(kafka_frame(spark, cluster, source))
        before.wait()
        assert view.group(group, source) == {(source, 0): 0, (source, 1): 0}
        after = before.other("commit.decided")
        before.release()
        after.wait()
        assert view.group(group, source) == view.ends(source) == {(source, 0): 1, (source, 1): 2}
        assert view.values(out) == []
        assert view.open_transactions(started.id) != set()
        after.release()
        assert started.awaitTermination(TIMEOUT)
    assert sorted(view.values(out)) == ["a", "b", "c"]


def test_the_replay_of_a_decided_batch_writes_nothing(files, sink, topic, view):
    """Not even something that is aborted afterwards: the log's end does not move."""
    out = topic(2)
    source = files().add(["a", "b"], ["c"])
    query = sink(topic=out)
    query.run(source.stream())
    ends = view.ends_at_rest(out)
    for _ in range(2):
        query.forget(0)
        query.run(source.stream())
        assert view.ends(out) == ends
    query.run(source.add(["d"]).stream())
    assert sorted(view.values(out)) == ["a", "b", "c", "d"]


# Loss and repair


def lose(spark: SparkSession, query: Sink, frame: DataFrame, view: KafkaView, folder: Path, count: int) -> str:
    """Run a query whose micro-batch 0 loses this many of its decided transactions; the error's text."""
    with armed(spark, "commit.decided=hold", folder / "faults") as fault:
        started = query.start(frame)
        fault.wait()
        for name in sorted(view.open_transactions(started.id))[:count]:
            view.end_transaction(name, commit=False)
        fault.release()
        return ended_by(started, "EOS_TRANSACTION_LOST")


def test_a_decided_transaction_that_is_lost_is_repaired_from_the_replay(spark, files, sink, topic, view, tmp_path):
    """The query stops and names it; its next start writes exactly the lost rows."""
    out = topic()
    source = files().add(*[[f"{task}.{i}" for i in range(10)] for task in range(3)])
    query = sink(topic=out)
    message = lose(spark, query, source.stream(), view, tmp_path, 1)
    assert "1 of its 3 transactions" in message
    visible = view.values(out)
    assert len(visible) == 20
    written = len(view.rows(out, committed=False))
    query.run(source.stream())
    assert Counter(view.values(out)) == Counter(f"{task}.{i}" for task in range(3) for i in range(10))
    assert len(view.rows(out, committed=False)) == written + 10
    assert view.open_transactions(query.id or "") == set()
    query.run(source.add(["next"]).stream())
    assert view.values(out)[-1] == "next"


# Failure and abort


@pytest.mark.parametrize(
    ("topic_of_row", "condition", "says"),
    [(None, "EOS_ROW_INVALID", "which has 2"), ("no-such-topic", "EOS_TOPIC_MISSING", "no-such-topic")],
)
def test_a_row_that_cannot_be_written(topic_of_row, condition, says, files, sink, topic, refused, view):
    """Only the rows know it. The batch's other rows are aborted; without the row the replay is clean."""
    out = topic(2)
    good = [("a", out, 0)] * 5
    source = files("value string, topic string, partition int").add(good, [*good, ("b", topic_of_row or out, 7)])
    query = sink()
    refused(query, source.stream(), condition, out, tasks=True, says=says)
    assert "no-such-topic" not in view.admin.list_topics(timeout=TIMEOUT).topics
    query.run(source.stream().where("value = 'a'"))
    assert view.values(out) == ["a"] * 10


@pytest.mark.parametrize(("point", "tasks"), [("prepare.wrote", 6), ("prepare.flushed", 3)])
def test_a_task_that_fails_leaves_nothing_open(point, tasks, spark, files, sink, topic, view, tmp_path):
    """Its transaction is aborted, and those of the other tasks; readers are not held, and the replay is clean.

    On 4 task slots the sixth task begins when others have ended; of three tasks, the driver may have heard of none.
    """
    out = topic()
    source = files().add(*[[f"{task}.{i}" for i in range(10)] for task in range(tasks)])
    query = sink(topic=out)
    with armed(spark, f"{point}=fail@{tasks}", tmp_path / "faults"):
        query.stopped_by(source.stream(), "FaultInjected")
    wait_for(lambda: not view.open_transactions(query.id or ""), "the abort of all transactions")
    wait_for(lambda: not view.held(out), "the abort markers")
    assert view.values(out) == []
    query.run(source.stream())
    assert Counter(view.values(out)) == Counter(f"{task}.{i}" for task in range(tasks) for i in range(10))


def test_a_query_that_is_stopped_in_mid_batch_holds_nobody(spark, files, sink, topic, view, tmp_path):
    """No task has told the driver whose it is; what they wrote is aborted all the same, and the restart writes it."""
    out = topic()
    source = files().add(["a"], ["b"])
    query = sink(topic=out)
    with armed(spark, "prepare.prepared=hold", tmp_path / "faults") as fault:
        started = query.start(source.stream())
        fault.wait()
        assert view.open_transactions(query.id or "") != set()
        started.stop()
        wait_for(lambda: not view.open_transactions(query.id or ""), "the abort of all transactions")
    wait_for(lambda: not view.held(out), "the abort markers")
    query.run(source.stream())
    assert sorted(view.values(out)) == ["a", "b"]
    assert view.open_transactions(query.id or "") == set()
    assert view.held(out) == {}
