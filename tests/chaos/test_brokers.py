"""Brokers that die while a micro-batch is under way: leaders and coordinators move, and no row is lost or doubled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.options.parse import stream_options
from spark_eos.source.range_math import Task
from spark_eos.source.reader import EosKafkaStreamReader
from tests.support.judges.kafka_view import KafkaView
from tests.support.judges.recorder import judged, of_topics
from tests.support.kills.scene import Scene, topics_of
from tests.support.queries.data_paths import also_by
from tests.support.queries.sink_queries import VALUE, Files, Sink
from tests.support.servers.healed_brokers import BROKERS, heal
from tests.support.waiting import TIMEOUT, wait_for

pytestmark = pytest.mark.chaos

TASKS = 4


@pytest.fixture
def view(view_of_three: KafkaView) -> KafkaView:
    return view_of_three


def expected(tasks: int = TASKS) -> Counter[str]:
    return Counter(f"{task}.{i}" for task in range(tasks) for i in range(10))


def source(spark: SparkSession, folder: Path) -> Files:
    return Files(spark, folder / "input", VALUE).add(*[[f"{task}.{i}" for i in range(10)] for task in range(TASKS)])


@also_by("copy", "mirror")
@pytest.mark.parametrize("victim", range(BROKERS))
@pytest.mark.parametrize("point", ["prepare.wrote", "commit.verified", "commit.decided"])
def test_a_broker_that_dies_in_the_middle_of_a_batch(point, victim, brokers, view, way, spark, tmp_path):
    """Whether the query waits for the others or stops: after its restart every row is there once."""
    scene = Scene(view, topics_of(brokers), tmp_path, way=way)
    scene.strike(
        spark,
        f"{point}=hold@{7 if point.startswith('prepare') else 3}",  # in micro-batch 2
        lambda started: brokers.kill(victim),
        before_restart=lambda: heal(brokers),
        heals=lambda: heal(brokers),
    )
    scene.feed()
    scene.check(scene.drain(spark))


def test_a_ledger_whose_replicas_are_gone_is_named(brokers, view, spark, tmp_path):
    """Before any task; when the broker is back, the query runs."""
    ledger, out = "ledger-of-three", "out-of-three"
    brokers.create_topic(out)
    brokers.create_topic(ledger, replication=BROKERS, cleanup_policy="compact", min_insync_replicas=BROKERS)
    query = Sink(brokers, tmp_path / "query", topic=out, ledger__topic=ledger)
    rows = source(spark, tmp_path)
    brokers.kill(2)
    wait_for(
        lambda: len(view.admin.list_topics(ledger, timeout=TIMEOUT).topics[ledger].partitions[0].isrs) < BROKERS,
        "the ISR",
    )
    with judged(view, of_topics(view, out)):
        try:
            text = query.stopped_by(rows.stream(), "EOS_LEDGER_NOT_WRITABLE")
        finally:
            brokers.start(2)
        assert "min.insync.replicas=3" in text
        query.run(rows.stream())
        assert Counter(view.values(out)) == expected()


@pytest.mark.parametrize("fate", ["dies", "hands over"])
def test_a_leader_that_changes_while_a_task_reads(fate, brokers, view):
    """The task goes on with the next leader: every row once and in order, and the plan for more."""
    topic = topics_of(brokers)()
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers, "log_level": 0, "acks": "all"})
    count = 40_000  # of 1 KB: much more than is fetched ahead
    for i in range(count):
        producer.produce(topic, b"%08d" % i + bytes(1000), partition=0)
        producer.poll(0)
    assert producer.flush(TIMEOUT) == 0
    options = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    reader = EosKafkaStreamReader(stream_options(options))
    reading = reader.read(Task((OffsetRange(topic, 0, 0, count),)))
    numbers = [int(value.as_py()[:8]) for value in next(reading)["value"]]
    leader = view.admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions[0].leader
    end = brokers.kill if fate == "dies" else brokers.stop
    try:
        end(leader)
        numbers += [int(value.as_py()[:8]) for batch in reading for value in batch["value"]]
        assert numbers == list(range(count))
        assert reader.latestOffset({topic: {"0": 0}}, reader.getDefaultReadLimit())[topic] == {"0": count}
    finally:
        brokers.start(leader)
