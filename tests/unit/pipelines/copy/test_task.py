"""A task of a copy, where its source changes under its hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spark_eos.base import system
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import DataLossError, EosError
from spark_eos.options.parse import sink_options, stream_options
from spark_eos.pipelines.copy import task
from spark_eos.pipelines.copy.plan import CopyPlan, Transform
from spark_eos.pipelines.copy.written import LastWritten
from spark_eos.pipelines.registry.unknown_ids import MOST_NOTED
from spark_eos.sink.attempt import WriteStats
from spark_eos.sink.schema import Columns
from spark_eos.source import copying, readable
from spark_eos.source.copying import Copied
from spark_eos.source.readable import ReadableRanges
from spark_eos.source.schema import arrow_schema
from tests.support.judges.conditions import raises

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
WRITES = sink_options({**SERVERS, "topic": "out", "checkpointLocation": "/c"})
HERE = OffsetRange("in", 0, 3, 9)


class Cluster:
    """The source's. ``clusters``, ``ids``: its own id and the topic's, each time that a task asks, the last one ever
    after; ``values``: of the partitions; ``copied``: ranges that were copied whole, and where to."""

    def __init__(self) -> None:
        self.clusters, self.ids = ["c"], ["id"]
        self.values: dict[int, list[bytes]] = {}
        self.copied: list[Any] = []

    def topics(self, *_: Any, **__: Any) -> dict[str, Any]:
        id_ = _next(self.ids)
        return {} if id_ is None else {"in": SimpleNamespace(id=id_)}

    def own_id(self, _: Any) -> str:
        return _next(self.clusters)

    def copy(self, _: Any, range_: OffsetRange, target: tuple[str, int], producer: Any) -> Copied:
        self.copied.append((range_.start, range_.end, target))
        return Copied(2, 7, 1, oldest_dated_ms=3)

    def read(self, _: Any, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
        for offset, value in enumerate(self.values[range_.partition], range_.start):
            rows = [{"topic": range_.topic, "partition": range_.partition, "offset": offset, "value": value}]
            yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema(False))


def _next(told: list[Any]) -> Any:
    return told.pop(0) if len(told) > 1 else told[0]


@pytest.fixture
def cluster(monkeypatch) -> Cluster:
    """What tasks ask. A topic that is not there is looked for three times more: each look at the clock takes 2 s."""
    cluster, now = Cluster(), count(step=2)
    monkeypatch.setattr(system, "monotonic", lambda: float(next(now)))
    monkeypatch.setattr(copying, "copy_range", cluster.copy)
    monkeypatch.setattr(readable, "describe_topics", cluster.topics)
    monkeypatch.setattr(readable, "cluster_id", cluster.own_id)
    monkeypatch.setattr(readable, "read_range", cluster.read)
    return cluster


def reading(plan: CopyPlan) -> ReadableRanges:
    return ReadableRanges.in_task(plan.source, "c", {"in": "id"})


def copied(fail: bool = True, aged: Callable[..., object] = lambda *_: None) -> Iterator[Any]:
    """``aged``: is told of the topic whose rows are written, and of their oldest timestamp."""
    source = stream_options({**SERVERS, "subscribe": "in", "failOnDataLoss": str(fail)})
    plan = CopyPlan(source, WRITES, None, "c")
    writer: Any = SimpleNamespace(producer=None, look_up=lambda _: None, check_age=aged)
    return task.RangeWriter(plan, reading(plan), writer).written([HERE])


def test_a_range_is_copied_to_the_partition_of_the_same_number(cluster):
    """Of the topic that the sink names, which is asked whether it would delete the rows at once."""
    ages: list[Any] = []
    assert [(stats.rows, stats.oldest_ms) for stats in copied(aged=lambda *told: ages.append(told))] == [(2, 1)]
    assert cluster.copied == [(3, 9, ("out", 0))]
    assert ages == [("out", 3)]


def test_what_is_committed_is_noted_for_the_progress(tmp_path):
    """Rows, bytes and dropped records."""
    noted = LastWritten(str(tmp_path))
    plan = CopyPlan(stream_options({**SERVERS, "subscribe": "in"}), WRITES, None, "c", written=noted)
    task.TopicRows(plan).committed(3, 5, 70, 2, 9)
    assert noted.last() == {"batch": 3, "rows": 5, "bytes": 70, "dropped": 2}


@pytest.mark.parametrize(
    "ids", [["id", "other"], ["id", None], [None, None, None, None, "id"]], ids=["other", "gone", "is back"]
)
def test_a_topic_that_changes_while_it_is_read_or_left_out_fails_the_task(ids, cluster):
    """At the same offsets it has other rows, and nobody knows which were read; rows of one that comes back may not be
    left out."""
    cluster.ids = list(ids)
    with raises("EOS_SOURCE_RECREATED"):
        list(copied(fail=False))


class Learning:
    """A function that takes each value for an unknown id; only those that are noted, where there is a note."""

    def __init__(self, noted: frozenset[str] | None = None) -> None:
        self.noted, self.unknown = noted, tuple(sorted(noted or ()))

    def for_range(self, noted: Any) -> Learning:
        return Learning(None if noted is None else frozenset(noted))

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = {str(value.as_py(), "ascii") for value in batch.column("value")}
        self.unknown = tuple(sorted({*self.unknown, *found})) if self.noted is None else tuple(sorted(self.noted))
        return batch.select(["value"])


def learning(**noted: Any) -> task.RangeWriter:
    """The writer of a query with `Learning`."""
    writer: Any = SimpleNamespace(write=lambda batch: WriteStats(batch.rows, 0))
    columns = Columns(key=False, topic=False, partition=False, headers=False, timestamp=False)
    transform = Transform(Learning(), "learning", columns)
    plan = CopyPlan(stream_options({**SERVERS, "subscribe": "in"}), WRITES, transform, "c")
    return task.RangeWriter(plan, reading(plan), writer, **noted)


RANGES = (HERE, OffsetRange("in", 1, 0, 9), OffsetRange("in", 2, 0, 9))


def test_each_range_notes_its_own_unknown_ids(cluster):
    """Those of all its chunks; a range without any has no note."""
    cluster.values, writer = {0: [b"7", b"5", b"7"], 1: [], 2: [b"7"]}, learning()
    assert sum(stats.rows for stats in writer.written(RANGES)) == 4
    assert writer.unknown == {RANGES[0]: ("5", "7"), RANGES[2]: ("7",)}


def test_a_range_that_is_read_again_gets_its_own_note(cluster):
    """And not that of another one; what it had is noted again, as it may be lost again."""
    before = {RANGES[0]: ("7",), RANGES[2]: ("9",)}
    cluster.values, writer = {0: [b"7"], 1: [b"7"], 2: [b"7"]}, learning(noted=before)
    assert sum(stats.rows for stats in writer.written(RANGES)) == 3
    assert writer.unknown == before


def test_a_task_with_more_runs_of_unknown_ids_than_can_be_noted_stops(cluster):
    """As soon as it has them."""
    before = {OffsetRange("in", 3, 0, 9): ("0",) * (MOST_NOTED - 3)}
    cluster.values = {0: [b"1", b"2"], 1: [b"1"], 2: [b"3"]}
    with pytest.raises(EosError, match=rf"EOS_REGISTRY_NOT_FOUND.*form {MOST_NOTED + 1} intervals"):
        list(learning(unknown=before).written(RANGES))


def test_a_topic_that_is_gone_is_a_data_loss(cluster):
    """Which is an error, or leaves the range out."""
    cluster.ids = ["other"]
    with pytest.raises(DataLossError) as caught:
        list(copied())
    assert isinstance(caught.value, EosError)
    assert list(copied(fail=False)) == []
    assert cluster.copied == []


@pytest.mark.parametrize("clusters", [["d"], ["c", "d"]])
def test_another_cluster_is_an_error_whatever_may_be_lost(clusters, cluster):
    """The servers may be names that lead an executor elsewhere than the driver: its topics are not those that are
    missing, and nothing is left out."""
    cluster.clusters = list(clusters)
    with raises("EOS_SOURCE_CLUSTER_CHANGED"):
        list(copied(fail=False))


def test_a_topic_that_is_only_hidden_for_a_moment_is_copied(cluster):
    """By a broker that lags behind: left out once, its rows are behind the query for good."""
    cluster.ids = [None, "before", "id"]
    assert sum(stats.rows for stats in copied(fail=False)) == 2
    assert len(cluster.copied) == 1
