"""Topics and clusters that change while a micro-batch is planned: whatever a look saw is put together with itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.admin.topics import Topic
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.options.parse import stream_options
from spark_eos.options.selection import parse_subscribe
from spark_eos.source.byte_limit import SampledBatch
from spark_eos.source.reader import EosKafkaStreamReader
from spark_eos.source.watch import TopicWatch
from spark_eos.spark.versions import ReadAllAvailable
from tests.support.judges.conditions import raises

NOBODY = KafkaProperties({"bootstrap.servers": "127.0.0.1:1"})
HERE = {"#cluster": {"id": "c"}, "#ids": {"t": "id1"}, "t": {"0": 100}}
SOON = {"#cluster": {"id": "c"}, "#ids": {"t": "id1"}, "t": {"0": 200}}


class Cluster:
    """One topic, t, maybe another one ``beside`` it, and the time. ``hidden``: whether no look sees t; ``growth``: by
    how much more a question for its end finds than the one before; ``asked_s``: when ends were asked for."""

    def __init__(self) -> None:
        self.cluster, self.id, self.partitions, self.end = "c", "id1", 1, 200
        self.now, self.hidden, self.growth = 1000.0, False, 0
        self.beside: list[str] = []
        self.asked_s: list[float] = []

    def topic_names(self, *_: Any) -> list[str]:
        return ["t", *self.beside]

    def describe_topics(self, kafka: Any, names: Iterable[str], *_: Any) -> dict[str, Topic]:
        kafka.cluster_id = self.cluster
        found = {
            name: Topic(self.id if name == "t" else "id-beside", self.partitions, internal=False) for name in names
        }
        if self.hidden:
            found.pop("t", None)
        return found

    def begin_offsets(self, kafka: Any, asked: dict[str, list[int]], *_: Any) -> dict[str, dict[int, int]]:
        return {topic: dict.fromkeys(numbers, 0) for topic, numbers in asked.items()}

    def ends_and_epochs(self, kafka: Any, asked: dict[str, list[int]], *_: Any) -> Any:
        assert all(p < self.partitions for numbers in asked.values() for p in numbers), "there is no such partition"
        self.end += self.growth
        self.asked_s.append(self.now)
        return {topic: dict.fromkeys(numbers, self.end) for topic, numbers in asked.items()}, {}

    def look(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[SampledBatch]]:
        """Small rows, for whose size a leader takes until the topics are looked at anew."""
        self.now += 10
        return {partition: [SampledBatch(at, at + 1000, 1)] for partition, at in wanted.items()}


def reader_of(fail: bool, **options: str) -> EosKafkaStreamReader:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "failOnDataLoss": str(fail)}
    return EosKafkaStreamReader(stream_options({**given, **(options or {"subscribe": "t"})}))


def planned(reader: EosKafkaStreamReader, at: dict[str, Any]) -> dict[str, Any]:
    return reader.latestOffset(at, reader.getDefaultReadLimit())


@pytest.fixture
def cluster(asks: Callable[[Any], None]) -> Cluster:
    asks(found := Cluster())
    return found


def test_a_cluster_that_changes_while_a_micro_batch_is_planned_is_noticed(cluster):
    """Whatever failOnDataLoss says: its rows are others."""
    reader = reader_of(False, subscribe="t", maxBytesPerTrigger="1g")
    reader.initialOffset()
    cluster.cluster, cluster.id, cluster.end = "d", "id-d", 500
    with raises("EOS_SOURCE_CLUSTER_CHANGED"):
        planned(reader, HERE)


def test_a_micro_batch_does_not_reach_from_one_cluster_to_another(cluster):
    """Even if somebody has logged one, and its end is of the cluster that is there."""
    cluster.cluster = "d"
    with raises("EOS_SOURCE_CLUSTER_CHANGED"):
        reader_of(fail=False).partitions(HERE, {**SOON, "#cluster": {"id": "d"}})


def test_a_new_query_begins_with_the_id_of_each_topic(cluster):
    """Also of one that brokers did not tell of before and after its offsets were asked for."""
    names = iter([["t"], ["t", "other"], ["t"]])
    cluster.topic_names = lambda *_: next(names, ["t", "other"])
    initial = reader_of(fail=True, subscribePattern=".*", startingOffsets="latest").initialOffset()
    assert initial.keys() - {"#cluster", "#ids"} == initial["#ids"].keys() == {"t", "other"}


def test_a_partition_that_one_broker_does_not_tell_of_is_no_loss(cluster):
    """As after it was added."""
    reader = reader_of(fail=True)
    reader.initialOffset()
    cluster.partitions = 2
    assert planned(reader, {**HERE, "t": {"0": 100, "1": 100}})["t"] == {"0": 200, "1": 200}


@pytest.mark.parametrize(
    ("narrower", "entry"),
    [
        ({"subscribe": "other"}, "EOS_SOURCE_DATA_LOSS.not_selected"),
        ({"subscribePattern": "oth"}, "EOS_SOURCE_DATA_LOSS.not_selected"),
        ({"assign": '{"t": [1]}'}, "EOS_SOURCE_DATA_LOSS"),
    ],
)
def test_what_the_selection_leaves_out_is_not_waited_for(cluster, narrower, entry):
    """The user has said so: it is a loss at once. Or another query has the checkpoint by mistake, where the topic is
    not asked for at all."""
    cluster.beside, cluster.partitions = ["other"], 2
    with raises(entry):
        planned(reader_of(True, **narrower), HERE)
    assert cluster.now == 1000


def test_a_replay_leaves_out_what_stays_away(cluster):
    """With failOnDataLoss = false, after a while."""
    cluster.hidden = True
    assert reader_of(fail=False).partitions(HERE, SOON) == []
    assert cluster.now == pytest.approx(1005)


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_is_recreated_with_fewer_partitions_is_a_data_loss(cluster, fail):
    """Nothing is asked of the partition that it does not have."""
    cluster.id, cluster.partitions = "id2", 3
    reader, at = reader_of(fail, assign='{"t": [5]}'), {**HERE, "t": {"5": 100}}
    if fail:
        with raises("EOS_SOURCE_DATA_LOSS", "no such partition"):
            planned(reader, at)
    else:
        assert "t" not in planned(reader, at)


@pytest.mark.parametrize("start", ['{"t": {"0": 150}, "other": {"0": 200}}', "group"])
def test_a_topic_that_comes_while_offsets_are_asked_for_is_there_in_all_or_in_none(cluster, group, start):
    """First offsets and ends are of the same partitions."""
    begins = cluster.begin_offsets

    def slowly(*given: Any) -> Any:
        if not cluster.beside:
            cluster.now, cluster.beside = cluster.now + 10, ["other"]
        return begins(*given)

    cluster.begin_offsets = slowly
    group.committed = {"t": {0: 150}, "other": {0: 200}}
    options = {"subscribePattern": ".*", "startingOffsets": start, "kafka.group.id": "g"}
    initial = reader_of(fail=True, **options).initialOffset()
    assert (initial["t"], initial["other"]) == ({"0": 150}, {"0": 200})


def test_the_end_of_a_topic_that_grows_is_not_beyond_it(cluster):
    """Rows come between any two requests, and -1 is the end of one moment."""
    cluster.growth = 10
    initial = reader_of(fail=True, subscribe="t", startingOffsets='{"t": {"0": -1}}').initialOffset()
    assert initial["t"]["0"] > 200


def test_an_idle_stream_asks_for_its_ends_at_most_every_50_ms(cluster):
    """Spark asks the reader every 10 ms."""
    watched = TopicWatch(BrokerClient(NOBODY), parse_subscribe("subscribe", "t"))
    for _ in range(100):
        watched.look()
        cluster.now += 0.01
    assert 17 <= len(cluster.asked_s) <= 21


def test_the_users_limit_holds_unless_the_engine_asks_for_everything(cluster):
    """A Spark without admission control passes neither start nor limit: it says where the last run has ended by a
    micro-batch without rows, and asks twice. Trigger.Once asks for everything."""
    reader = reader_of(fail=True, subscribe="t", maxOffsetsPerTrigger="30")
    assert reader.partitions(HERE, HERE) == []
    assert [reader.latestOffset()["t"] for _ in range(2)] == [{"0": 130}] * 2
    assert planned(reader, HERE)["t"] == {"0": 130}
    assert reader.latestOffset(HERE, ReadAllAvailable())["t"] == {"0": 200}
