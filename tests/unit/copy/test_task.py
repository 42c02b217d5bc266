"""A task of a copy, where its source changes under its hands."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.copy import task
from spark_eos.copy.copying import Copied
from spark_eos.copy.plan import CopyPlan
from spark_eos.errors import CheckpointError, DataLossError, EosError, KafkaError
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.options.parse import sink_options, stream_options
from spark_eos.protocol.head import Digest
from spark_eos.topic_partition import OffsetRange

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
HERE = OffsetRange("in", 0, 3, 9)


class Cluster:
    """The source's: its id, and that of the topic, each time that somebody asks."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, ids: list[str | None], clusters: tuple[str, ...] = ("c",)
    ) -> None:
        self._ids, self._clusters = iter(ids), iter([*clusters, *clusters[-1:] * 9])
        self.copied: list[Any] = []
        monkeypatch.setattr(task, "describe_topics", lambda *_, **__: self._topics())
        monkeypatch.setattr(task, "cluster_id", lambda kafka: next(self._clusters))
        monkeypatch.setattr(task, "copy_range", self._copy)
        monkeypatch.setattr(task, "HIDDEN_S", 0.0)

    def _topics(self) -> dict[str, Any]:
        found = next(self._ids)
        return {} if found is None else {"in": SimpleNamespace(id=found)}

    def _copy(self, fetching: Any, place: Any, target: tuple[str, int], producer: Any) -> Copied:
        self.copied.append((place.start, place.end, target))
        return Copied(2, 7, 1)


def parts(fail: bool = True) -> Iterator[Any]:
    source = stream_options({**SERVERS, "subscribe": "in", "failOnDataLoss": str(fail)})
    plan = CopyPlan(source, sink_options({**SERVERS, "topic": "out", "checkpointLocation": "/c"}), "c", None)
    nothing: Any = object.__new__(ArrowProducer)
    return task.Parts(plan, nothing, nothing, Digest.BATCHES, {"in": "id"}).of([HERE])


def test_a_range_is_copied_to_the_partition_of_the_same_number(monkeypatch):
    """Of the topic that the sink names."""
    cluster = Cluster(monkeypatch, ["id", "id"])
    assert [(part.rows, part.oldest_ms) for part in parts()] == [(2, 1)]
    assert cluster.copied == [(3, 9, ("out", 0))]


@pytest.mark.parametrize("ids", [["id", "other"], ["id", None]])
def test_a_topic_that_is_recreated_while_it_is_read_fails_the_task(ids, monkeypatch):
    """At the same offsets it has other rows, and nobody knows which were read."""
    Cluster(monkeypatch, ids)
    with pytest.raises(KafkaError) as caught:
        list(parts())
    assert caught.value.condition == "EOS_SOURCE_RECREATED"


def test_a_topic_that_is_gone_is_a_data_loss(monkeypatch):
    """Which is an error, or leaves the range out."""
    cluster = Cluster(monkeypatch, ["other"] * 9)
    with pytest.raises(DataLossError) as caught:
        list(parts())
    assert isinstance(caught.value, EosError)
    assert list(parts(fail=False)) == []
    assert cluster.copied == []


@pytest.mark.parametrize("clusters", [("d",), ("c", "d")])
def test_another_cluster_is_an_error_whatever_may_be_lost(clusters, monkeypatch):
    """The servers may be names that lead an executor elsewhere than the driver: its topics are not those that are
    missing, and nothing is left out."""
    Cluster(monkeypatch, ["id"] * 2, clusters)
    with pytest.raises(CheckpointError) as caught:
        list(parts(fail=False))
    assert caught.value.condition == "EOS_SOURCE_CLUSTER_CHANGED"


def test_a_topic_that_is_only_hidden_for_a_moment_is_copied(monkeypatch):
    """By a broker that lags behind: left out once, its rows are behind the query for good."""
    cluster = Cluster(monkeypatch, [None, "before", "id", "id"])
    monkeypatch.setattr(task, "HIDDEN_S", 5.0)
    assert sum(part.rows for part in parts(fail=False)) == 2
    assert len(cluster.copied) == 1


def test_a_topic_that_comes_back_while_its_rows_are_left_out_fails_the_task(monkeypatch):
    """It was not gone, and its rows are none that may be left out."""
    Cluster(monkeypatch, [None, None, "id"])
    with pytest.raises(KafkaError) as caught:
        list(parts(fail=False))
    assert caught.value.condition == "EOS_SOURCE_RECREATED"
