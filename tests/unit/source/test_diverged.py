"""A log that loses its newest records and grows again, as the driver's side of the source sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from spark_eos.base.topic_partition import flat
from spark_eos.kafka.admin.topics import Topic
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.options.parse import stream_options
from spark_eos.options.selection import parse_subscribe
from spark_eos.source.epochs import Leaders
from spark_eos.source.reader import EosKafkaStreamReader
from spark_eos.source.watch import TopicWatch
from tests.support.judges.conditions import raises
from tests.support.models.replicas import Model


class Cluster(Model):
    """Topic t, of one partition, and the time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def describe_topics(self, kafka: Any, *_: Any) -> dict[str, Topic]:
        kafka.cluster_id = "c"
        return {"t": Topic("id", 1, internal=False, leader_epochs={0: self.epoch})}

    def begin_offsets(self, *_: Any) -> dict[str, dict[int, int]]:
        return {"t": {0: 0}}

    def ends_and_epochs(self, *_: Any) -> Any:
        return {"t": {0: len(self.log)}}, {"t": {0: self.epoch}}

    def offsets_and_epochs_at(self, *_: Any) -> Any:
        """The leader changes while it is asked, and the log grows."""
        self.elect(0)
        self.write(20)
        return {"t": {0: len(self.log) - 5}}, {"t": {0: self.epoch}}

    def leaders_of(self, *_: Any) -> Leaders:
        return self.leaders()

    def reader(self, **options: str) -> EosKafkaStreamReader:
        given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "startingOffsets": "earliest"}
        return EosKafkaStreamReader(stream_options({**given, **options}))

    def lose(self, records: int) -> None:
        self.replicas[self.leader].cut(len(self.log) - records)
        self.elect(self.leader)


@pytest.fixture
def cluster(asks: Callable[[Any], None]) -> Cluster:
    asks(found := Cluster())
    return found


def next_of(cluster: Cluster, reader: EosKafkaStreamReader, at: dict[str, Any] | None = None) -> dict[str, Any]:
    """The end of the next micro-batch, as Spark has it in the offset log."""
    cluster.now += 10
    return json.loads(json.dumps(reader.latestOffset(at, reader.getDefaultReadLimit())))


def at_100(cluster: Cluster) -> tuple[EosKafkaStreamReader, dict[str, Any]]:
    """A query that has read 100 records of epoch 1."""
    cluster.elect(0)
    cluster.write(100)
    reader = cluster.reader()
    begin = next_of(cluster, reader)
    end = next_of(cluster, reader, begin)
    assert end == {"#cluster": {"id": "c"}, "#epochs": {"t": {"0": 1}}, "#ids": {"t": "id"}, "t": {"0": 100}}
    return reader, end


@pytest.mark.parametrize(
    ("grown", "condition"),
    [(0, "EOS_SOURCE_DATA_LOSS"), (1, "EOS_SOURCE_LOG_DIVERGED"), (300, "EOS_SOURCE_LOG_DIVERGED")],
    ids=["not grown", "shorter than before", "longer"],
)
@pytest.mark.parametrize("again", [True, False], ids=["started again", "running"])
def test_it_is_named_however_long_the_log_is_by_now(cluster, again, grown, condition):
    """Where it has only lost its end, nothing is there that was written anew: that is data loss as ever."""
    reader, at = at_100(cluster)
    cluster.lose(40)
    cluster.write(grown)
    with raises(condition) as caught:
        next_of(cluster, cluster.reader() if again else reader, at)
    assert (caught.value.parameters["expected"], caught.value.parameters["found"]) == (100, 60)


def test_an_offset_log_without_epochs_goes_on(cluster):
    """What is lost after the start is noticed; with the next micro-batch the log has them."""
    _, at = at_100(cluster)
    old = {key: value for key, value in at.items() if key != "#epochs"}
    reader = cluster.reader()
    assert next_of(cluster, reader, old) == old
    cluster.lose(40)
    cluster.write(300)
    with raises("EOS_SOURCE_LOG_DIVERGED"):
        next_of(cluster, reader, old)
    end = next_of(cluster, cluster.reader(), old)
    assert end["#epochs"] == {"t": {"0": 2}}


def test_a_line_of_the_offset_log_serves_as_starting_offsets(cluster):
    """Only its offsets count."""
    _, at = at_100(cluster)
    assert next_of(cluster, cluster.reader(startingOffsets=json.dumps(at)))["t"] == {"0": 100}


def test_an_offset_of_a_time_is_noted_with_its_epoch_whatever_the_topics_told(cluster):
    """The leader may change between the two requests."""
    for count in (5, 5):
        cluster.write(count)
        cluster.elect(0)
    client = BrokerClient(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}))
    watched = TopicWatch(client, parse_subscribe("subscribe", "t"))
    assert watched.topics().leader_epochs == {"t": {0: 2}}
    assert watched.epochs_at(flat(watched.at_times({"t": {0: 5}})), {}) == {("t", 0): 3}
