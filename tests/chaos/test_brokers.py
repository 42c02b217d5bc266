"""Leaders that die or hand over while a task reads; those that matter to a commit are in test_coordinators.py."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.options.parse import stream_options
from spark_eos.source.range_math import RangeTask
from spark_eos.source.reader import EosKafkaStreamReader
from tests.support.kills.scene import topics_of
from tests.support.waiting import TIMEOUT

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("fate", ["dies", "hands over"])
def test_a_leader_that_changes_while_a_task_reads(fate, brokers, view_of_three):
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
    reading = reader.read(RangeTask((OffsetRange(topic, 0, 0, count),)))
    numbers = [int(value.as_py()[:8]) for value in next(reading)["value"]]
    leader = view_of_three.admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions[0].leader
    end = brokers.kill if fate == "dies" else brokers.stop
    try:
        end(leader)
        numbers += [int(value.as_py()[:8]) for batch in reading for value in batch["value"]]
        assert numbers == list(range(count))
        assert reader.latestOffset({topic: {"0": 0}}, reader.getDefaultReadLimit())[topic] == {"0": count}
    finally:
        brokers.start(leader)
