"""A log that loses its newest records and grows again, as the driver's side of the source sees it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.base.topic_partition import flat
from spark_eos.errors import DataLossError
from spark_eos.kafka.admin.topics import Topic
from spark_eos.ledger import own_topics
from spark_eos.options.parse import stream_options
from spark_eos.source import plan, watch
from spark_eos.source import reader as reader_module
from spark_eos.source.questions import answered
from spark_eos.source.reader import EosKafkaStreamReader
from spark_eos.source.watch import TopicWatch
from tests.support.models.replicas import Model


class Cluster(Model):
    """Topic t, of one partition, and the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now = 1000.0
        monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(reader_module, "system", SimpleNamespace(monotonic=lambda: self.now, sleep=lambda _: None))
        monkeypatch.setattr(watch, "describe_topics", self._topics)
        monkeypatch.setattr(own_topics, "own_topics", lambda *_: {})
        monkeypatch.setattr(watch, "ends_and_epochs", lambda *_: ({"t": {0: len(self.log)}}, {"t": {0: self.epoch}}))
        monkeypatch.setattr(watch, "begin_offsets", lambda *_: {"t": {0: 0}})
        monkeypatch.setattr(watch, "leaders_of", lambda *_: self.leaders())

    def _topics(self, kafka: Any, *_: Any, **__: Any) -> dict[str, Topic]:
        kafka.cluster_id = "c"
        return {"t": Topic("id", 1, internal=False, leader_epochs={0: self.epoch})}

    def reader(self, **options: str) -> EosKafkaStreamReader:
        given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "startingOffsets": "earliest"}
        return EosKafkaStreamReader(stream_options({**given, **options}))

    def lose(self, records: int) -> None:
        self.replicas[self.leader].cut(len(self.log) - records)
        self.elect(self.leader)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def next_of(cluster: Cluster, reader: EosKafkaStreamReader, at: dict[str, Any] | None = None) -> dict[str, Any]:
    """The end of the next micro-batch, as Spark has it in the offset log."""
    cluster.now += 10
    start = reader.latestOffset(None if at is None else at, reader.getDefaultReadLimit())
    end: dict[str, Any] = json.loads(json.dumps(start))
    return end


def at_100(cluster: Cluster) -> tuple[EosKafkaStreamReader, dict[str, Any]]:
    """A query that has read 100 records of epoch 1."""
    cluster.elect(0)
    cluster.write(100)
    reader = cluster.reader()
    begin = next_of(cluster, reader)
    end = next_of(cluster, reader, begin)
    assert end == {"#cluster": {"id": "c"}, "#epochs": {"t": {"0": 1}}, "#ids": {"t": "id"}, "t": {"0": 100}}
    return reader, end


def condition_of(caught: pytest.ExceptionInfo[DataLossError]) -> tuple[str, object, object]:
    return caught.value.condition, caught.value.parameters["expected"], caught.value.parameters["found"]


@pytest.mark.parametrize("grown", [1, 300])
@pytest.mark.parametrize("again", [True, False], ids=["started again", "running"])
def test_it_is_named_however_long_the_log_is_by_now(cluster, again, grown):
    """Shorter than before, as long, or longer."""
    reader, at = at_100(cluster)
    cluster.lose(40)
    cluster.write(grown)
    reader = cluster.reader() if again else reader
    with pytest.raises(DataLossError) as caught:
        next_of(cluster, reader, at)
    assert condition_of(caught) == ("EOS_SOURCE_LOG_DIVERGED", 100, 60)


def test_a_log_that_has_only_lost_its_end_is_data_loss_as_before(cluster):
    """Nothing is there that was written anew."""
    reader, at = at_100(cluster)
    cluster.lose(40)
    with pytest.raises(DataLossError) as caught:
        next_of(cluster, reader, at)
    assert condition_of(caught) == ("EOS_SOURCE_DATA_LOSS", 100, 60)


def test_a_leader_that_lags_in_the_last_look_only_has_lost_nothing():
    """Of two partitions, each is too short in one look."""
    tries = iter([{("t", 0): 5, ("t", 1): 9}, {("t", 0): 9, ("t", 1): 5}])
    options = stream_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})
    behind = {("t", 0): 9, ("t", 1): 9}
    assert answered(plan._still_shorter(behind, options), lambda _: next(tries)) == {}


def test_an_offset_log_without_epochs_goes_on(cluster):
    """What is lost after the start is noticed; with the next micro-batch the log has them."""
    _, at = at_100(cluster)
    old = {key: value for key, value in at.items() if key != "#epochs"}
    reader = cluster.reader()
    assert next_of(cluster, reader, old) == old
    cluster.lose(40)
    cluster.write(300)
    with pytest.raises(DataLossError):
        next_of(cluster, reader, old)
    end = next_of(cluster, cluster.reader(), old)
    assert end["#epochs"] == {"t": {"0": 2}}


def test_a_line_of_the_offset_log_serves_as_starting_offsets(cluster):
    """Only its offsets count."""
    _, at = at_100(cluster)
    assert next_of(cluster, cluster.reader(startingOffsets=json.dumps(at)))["t"] == {"0": 100}


def test_an_offset_of_a_time_is_noted_with_its_epoch_whatever_the_ends_told(cluster, monkeypatch):
    """The leader may change between the two requests."""
    for count in (5, 5):
        cluster.write(count)
        cluster.elect(0)

    def at_times(*_: Any) -> Any:
        cluster.elect(0)
        cluster.write(20)
        return {"t": {0: 25}}, {"t": {0: cluster.epoch}}

    monkeypatch.setattr(watch, "offsets_and_epochs_at", at_times)
    stale = {"t": Topic("id", 1, internal=False, leader_epochs={0: 2})}
    monkeypatch.setattr(watch, "describe_topics", lambda *_, **__: stale)
    reader = cluster.reader(startingTimestamp="5")
    found = TopicWatch.at_times(reader._watch, {"t": {0: 5}})
    assert reader._watch.epochs_at(flat(found), {}) == {("t", 0): 3}
