"""The consumer group that the source tells how far the query is, whatever the sink."""

from __future__ import annotations

import json
import logging
import threading
import uuid

import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_eos.base.log import logger
from spark_eos.kafka.admin.groups import ConsumerGroup
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.source import group as module
from spark_eos.source.group import GroupReport
from tests.support.queries.source_calls import fresh, run, until_more
from tests.support.spark.spark_versions import needs_admission_control
from tests.support.waiting import TIMEOUT, wait_for


@pytest.fixture
def group() -> str:
    return f"lag-{uuid.uuid4()}"


@pytest.fixture
def report_often(monkeypatch):
    """Not only once a second."""
    monkeypatch.setattr(module, "_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "_RETRY_S", 0.05)


def warnings(caplog: pytest.LogCaptureFixture, group: str) -> list[str]:
    """The library's own about the group."""
    records = (r for r in caplog.records if r.name == logger.name and r.levelno >= logging.WARNING)
    return [r.message for r in records if group in r.message]


def commit(cluster, group: str, topic: str, offset: int) -> None:
    """As another consumer of the group, which then goes."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


@pytest.mark.usefixtures("report_often")
def test_what_is_done_is_reported_and_nothing_else(reader, topic, write, view, group):
    """A micro-batch that is planned is not done; the next call with its end as the start says that it is."""
    name = topic(2)
    write(name, *"abcd")
    source = reader(name, maxOffsetsPerTrigger=3, offsets__group__id=group)
    start = source.initialOffset()
    source.latestOffset(start, source.getDefaultReadLimit())
    end = json.loads(json.dumps(source.latestOffset(start, source.getDefaultReadLimit())))
    assert end[name] == {"0": 3, "1": 0}
    wait_for(lambda: view.group(group, name) == {(name, 0): 0, (name, 1): 0}, "the report of the start")
    source.latestOffset(end, source.getDefaultReadLimit())
    wait_for(lambda: view.group(group, name) == {(name, 0): 3, (name, 1): 0}, "the report of the first micro-batch")


@pytest.mark.usefixtures("report_often")
def test_a_group_is_never_moved_back(cluster, reader, topic, write, view, group):
    """By a run that was replaced and has not noticed, or by a second query with the same group."""
    name = topic()
    write(name, *"abcd")
    commit(cluster, group, name, 3)
    source = reader(name, maxOffsetsPerTrigger=2, offsets__group__id=group)
    at = until_more(source, json.loads(json.dumps(source.initialOffset())))
    source.latestOffset(at, source.getDefaultReadLimit())
    source._group.finish()
    assert view.group(group, name) == {(name, 0): 3}
    _, end = run(fresh(source), at)
    wait_for(lambda: view.group(group, name) == {(name, 0): 4}, "the end")
    assert end[name] == {"0": 4}


@pytest.mark.usefixtures("report_often")
def test_a_group_with_members_is_one_warning(cluster, reader, topic, write, view, group, caplog):
    """The query goes on meanwhile; when they are gone, the group gets its offsets."""
    name = topic()
    write(name, *"abcd")
    member = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 0})
    member.subscribe([name])
    wait_for(lambda: member.poll(0.1) is None and member.assignment(), "a member of the group")
    source = reader(name, maxOffsetsPerTrigger=2, offsets__group__id=group)
    batches, end = run(source)
    assert [row["value"] for batch in batches for row in batch] == [b"a", b"b", b"c", b"d"]
    wait_for(lambda: warnings(caplog, group), "a warning")
    member.close()

    def reported() -> bool:
        source.latestOffset(end, source.getDefaultReadLimit())
        return view.group(group, name) == {(name, 0): 4}

    wait_for(reported, "the report")
    assert len(warnings(caplog, group)) == 1
    assert "UNKNOWN_MEMBER_ID" in warnings(caplog, group)[0]


@pytest.mark.usefixtures("report_often")
def test_a_report_is_not_waited_for(group, monkeypatch):
    """A group's coordinator that does not answer holds no micro-batch, and at the end the query only for a while."""
    monkeypatch.setattr(module, "_LAST_S", 0.2)
    asked, over, ended = threading.Event(), threading.Event(), []

    def silent(*_: object, **__: object) -> None:
        asked.set()
        over.wait(TIMEOUT)
        ended.append(over.is_set())
        raise TimeoutError("no answer")

    monkeypatch.setattr(ConsumerGroup, "committed", silent)
    report = GroupReport(BrokerClient(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"})), group)
    for offset in range(100):
        report.reach({"t": {0: offset}})
        assert asked.wait(TIMEOUT)
    report.finish()
    assert ended == []  # whoever waits for the answer comes after it
    over.set()
    wait_for(lambda: report._thread is None, "the end of the reports")


@needs_admission_control
def test_the_lag_of_a_drained_topic_is_0_for_another_sink(spark, cluster, topic, write, view, group, tmp_path):
    """Files; the query ends by itself, and goes on later: at each end of it, the group is at the end of the topic."""
    name = topic(2)

    def run_once() -> None:
        rows = spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        rows = rows.option("subscribe", name).option("startingOffsets", "earliest").option("offsets.group.id", group)
        writer = rows.load().select("value").writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT)

    for values in ("abc", "de"):
        write(name, *values)
        run_once()
        assert view.group(group, name) == view.ends(name)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 5
