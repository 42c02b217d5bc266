"""Topics and clusters that change while a micro-batch is planned: whatever a look saw is put together with itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.errors import CheckpointError, DataLossError
from spark_eos.kafka.admin.groups import ConsumerGroup
from spark_eos.kafka.admin.topics import Topic
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.ledger import own_topics
from spark_eos.options.parse import stream_options
from spark_eos.options.selection import parse_subscribe
from spark_eos.source import plan, watch
from spark_eos.source.reader import EosKafkaStreamReader
from spark_eos.source.watch import TopicWatch
from spark_eos.spark.versions import ReadAllAvailable

NOBODY = KafkaProperties({"bootstrap.servers": "127.0.0.1:1"})
HERE = {"#cluster": {"id": "c"}, "#ids": {"t": "id1"}, "t": {"0": 100}}
SOON = {"#cluster": {"id": "c"}, "#ids": {"t": "id1"}, "t": {"0": 200}}


class Cluster:
    """One topic, t, maybe another one ``beside`` it, and the time. ``hidden``: whether no look sees t."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster, self.id, self.partitions, self.end = "c", "id1", 1, 200
        self.now, self.hidden = 1000.0, False
        self.beside: list[str] = []
        monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(watch, "describe_topics", self._topics)
        monkeypatch.setattr(own_topics, "own_topics", lambda *_: {})
        monkeypatch.setattr(watch, "topic_names", lambda *_: ["t", *self.beside])
        monkeypatch.setattr(watch, "ends_and_epochs", lambda *asked: (self._offsets(*asked), {}))
        monkeypatch.setattr(
            watch, "begin_offsets", lambda kafka, asked, *_: {t: dict.fromkeys(asked[t], 0) for t in asked}
        )
        monkeypatch.setattr(plan, "HIDDEN_WAITS_MS", (0, 5, 5, 10, 10, 20))

    def _topics(self, kafka: Any, names: Any, *_: Any, **__: Any) -> dict[str, Topic]:
        kafka.cluster_id = self.cluster
        found = {
            name: Topic(self.id if name == "t" else "id-beside", self.partitions, internal=False) for name in names
        }
        if self.hidden:
            found.pop("t", None)
        return found

    def _offsets(self, kafka: Any, asked: dict[str, list[int]], *_: Any) -> dict[str, dict[int, int]]:
        assert all(p < self.partitions for numbers in asked.values() for p in numbers), "there is no such partition"
        return {topic: dict.fromkeys(numbers, self.end) for topic, numbers in asked.items()}

    def reader(self, fail: bool, **options: str) -> EosKafkaStreamReader:
        given = {"kafka.bootstrap.servers": "127.0.0.1:1", "maxBytesPerTrigger": "1g", "failOnDataLoss": str(fail)}
        return EosKafkaStreamReader(stream_options({**given, **(options or {"subscribe": "t"})}))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_a_cluster_that_changes_while_a_micro_batch_is_planned_is_noticed(cluster):
    """Whatever failOnDataLoss says: its rows are others. Sizing takes until the topics are looked at anew."""
    reader = cluster.reader(fail=False)

    def within(at: Any, end: Any, most: int) -> Any:
        cluster.now += 10
        return end

    reader._sizes = SimpleNamespace(within=within)
    reader._watch.topics()
    cluster.cluster, cluster.id, cluster.end = "d", "id-d", 500
    with pytest.raises(CheckpointError) as caught:
        reader.latestOffset(HERE, reader.getDefaultReadLimit())
    assert caught.value.condition == "EOS_SOURCE_CLUSTER_CHANGED"


def test_a_micro_batch_does_not_reach_from_one_cluster_to_another(cluster):
    """Even if somebody has logged one."""
    with pytest.raises(CheckpointError) as caught:
        cluster.reader(fail=False).partitions(HERE, {**SOON, "#cluster": {"id": "d"}})
    assert caught.value.condition == "EOS_SOURCE_CLUSTER_CHANGED"


def test_a_new_query_begins_with_the_id_of_each_topic(cluster, monkeypatch):
    """Also of one that brokers did not tell of before and after its offsets were asked for."""
    names = iter([["t"], ["t", "other"], ["t"]])
    monkeypatch.setattr(watch, "topic_names", lambda *_: next(names, ["t", "other"]))
    initial = cluster.reader(fail=True, subscribePattern=".*", startingOffsets="latest").initialOffset()
    assert initial.keys() - {"#cluster", "#ids"} == initial["#ids"].keys() == {"t", "other"}


def test_a_partition_that_one_broker_does_not_tell_of_is_no_loss(cluster):
    """As after it was added."""
    cluster.partitions, reader = 1, cluster.reader(fail=True, subscribe="t")
    reader._sizes = SimpleNamespace(within=lambda at, end, most: end)
    reader._watch.topics()
    cluster.partitions = 2
    here = {**HERE, "t": {"0": 100, "1": 100}}
    assert reader.latestOffset(here, reader.getDefaultReadLimit())["t"] == {"0": 200, "1": 200}


@pytest.mark.parametrize("narrower", [{"subscribe": "other"}, {"subscribePattern": "oth"}, {"assign": '{"t": [1]}'}])
def test_what_the_selection_leaves_out_is_not_waited_for(cluster, narrower, monkeypatch):
    """The user has said so: it is a loss at once."""
    monkeypatch.setattr(plan, "HIDDEN_WAITS_MS", (0, 10**9))
    cluster.beside, cluster.partitions = ["other"], 2
    reader = cluster.reader(True, **narrower)
    with pytest.raises(DataLossError, match=r"no longer includes|partition is gone"):
        reader.latestOffset(HERE, reader.getDefaultReadLimit())


def test_a_replay_leaves_out_what_stays_away(cluster):
    """With failOnDataLoss = false, after a while."""
    cluster.hidden = True
    assert cluster.reader(fail=False).partitions(HERE, SOON) == []


@pytest.mark.parametrize("fail", [True, False])
def test_a_topic_that_is_recreated_with_fewer_partitions_is_a_data_loss(cluster, fail):
    """Nothing is asked of the partition that it does not have."""
    cluster.id, cluster.partitions = "id2", 3
    reader = cluster.reader(fail, assign='{"t": [5]}')
    at = {**HERE, "t": {"5": 100}}
    if fail:
        with pytest.raises(DataLossError, match="no such partition"):
            reader.latestOffset(at, reader.getDefaultReadLimit())
    else:
        assert "t" not in reader.latestOffset(at, reader.getDefaultReadLimit())


def test_the_checkpoint_of_another_query_is_the_first_guess_where_its_topic_is_not_asked_for(cluster):
    """And leaving rows out only the second."""
    cluster.beside = ["other"]
    reader = cluster.reader(fail=True, subscribe="other")
    with pytest.raises(DataLossError, match="no longer includes it") as error:
        reader.latestOffset(HERE, reader.getDefaultReadLimit())
    assert error.value.entry == "EOS_SOURCE_DATA_LOSS.not_selected"
    hint = error.value.hint
    assert hint.startswith("Another query needs a checkpoint of its own") and "reads t." in hint


@pytest.mark.parametrize("start", ['{"t": {"0": 150}, "other": {"0": 200}}', "group"])
def test_a_topic_that_comes_while_offsets_are_asked_for_is_there_in_all_or_in_none(cluster, monkeypatch, start):
    """First offsets and ends are of the same partitions."""
    begins, asked = watch.begin_offsets, []

    def slowly(*given: Any) -> Any:
        asked.append(given)
        if len(asked) == 1:
            cluster.now, cluster.beside = cluster.now + 10, ["other"]
        return begins(*given)

    monkeypatch.setattr(watch, "begin_offsets", slowly)
    monkeypatch.setattr(ConsumerGroup, "active_members", lambda *_, **__: [])
    monkeypatch.setattr(ConsumerGroup, "committed", lambda *_: {"t": {0: 150}, "other": {0: 200}})
    options = {"subscribePattern": ".*", "startingOffsets": start, "kafka.group.id": "g"}
    initial = cluster.reader(fail=True, **options).initialOffset()
    assert (initial["t"], initial["other"]) == ({"0": 150}, {"0": 200})


def test_the_end_of_a_topic_that_grows_is_not_beyond_it(cluster, monkeypatch):
    """Rows come between any two requests, and -1 is the end of one moment."""
    ends = watch.ends_and_epochs

    def growing(*asked: Any) -> Any:
        cluster.end += 10
        return ends(*asked)

    monkeypatch.setattr(watch, "ends_and_epochs", growing)
    initial = cluster.reader(fail=True, subscribe="t", startingOffsets='{"t": {"0": -1}}').initialOffset()
    assert initial["t"]["0"] > 200


def test_an_idle_stream_asks_for_its_ends_at_most_every_50_ms(cluster, monkeypatch):
    """Spark asks the reader every 10 ms."""
    watched, asked = TopicWatch(BrokerClient(NOBODY), parse_subscribe("subscribe", "t")), []
    monkeypatch.setattr(watch, "ends_and_epochs", lambda *given: (asked.append(cluster.now) or {"t": {0: 200}}, {}))
    for _ in range(100):
        watched.look()
        cluster.now += 0.01
    assert 17 <= len(asked) <= 21


def test_the_users_limit_holds_unless_the_engine_asks_for_everything(cluster):
    """A Spark without admission control passes neither start nor limit: it says where the last run has ended by a
    micro-batch without rows, and asks twice. Trigger.Once asks for everything."""
    reader = cluster.reader(fail=True, subscribe="t", maxOffsetsPerTrigger="30")
    reader._sizes = SimpleNamespace(within=lambda at, end, most: end)
    assert reader.partitions(HERE, HERE) == []
    assert [reader.latestOffset()["t"] for _ in range(2)] == [{"0": 130}] * 2
    assert reader.latestOffset(HERE, reader.getDefaultReadLimit())["t"] == {"0": 130}
    assert reader.latestOffset(HERE, ReadAllAvailable())["t"] == {"0": 200}
