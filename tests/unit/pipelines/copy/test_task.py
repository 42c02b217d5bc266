"""A task of a copy, where its source changes under its hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import DataLossError, EosError
from spark_eos.options.parse import sink_options, stream_options
from spark_eos.pipelines.copy import task
from spark_eos.pipelines.copy.plan import CopyPlan, Transform
from spark_eos.pipelines.copy.written import LastWritten
from spark_eos.pipelines.registry import unknown_ids
from spark_eos.sink.attempt import WriteStats
from spark_eos.sink.schema import Columns
from spark_eos.source import copying, readable
from spark_eos.source.copying import Copied
from spark_eos.source.readable import ReadableRanges
from spark_eos.source.schema import arrow_schema
from tests.support.judges.conditions import raises

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
HERE = OffsetRange("in", 0, 3, 9)


class Cluster:
    """The source's: its id, and that of the topic, each time that somebody asks."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, ids: list[str | None], clusters: tuple[str, ...] = ("c",)
    ) -> None:
        self._ids, self._clusters = iter(ids), iter([*clusters, *clusters[-1:] * 9])
        self.copied: list[Any] = []
        monkeypatch.setattr(readable, "describe_topics", lambda *_, **__: self._topics())
        monkeypatch.setattr(readable, "cluster_id", lambda kafka: next(self._clusters))
        monkeypatch.setattr(copying, "copy_range", self._copy)
        monkeypatch.setattr(readable, "HIDDEN_S", 0.0)

    def _topics(self) -> dict[str, Any]:
        found = next(self._ids)
        return {} if found is None else {"in": SimpleNamespace(id=found)}

    def _copy(self, fetching: Any, place: Any, target: tuple[str, int], producer: Any) -> Copied:
        self.copied.append((place.start, place.end, target))
        return Copied(2, 7, 1, oldest_dated_ms=3)


def copied(fail: bool = True, aged: Callable[..., object] = lambda *_: None) -> Iterator[Any]:
    """``aged``: is told of the topic whose rows are written, and of their oldest timestamp."""
    source = stream_options({**SERVERS, "subscribe": "in", "failOnDataLoss": str(fail)})
    plan = CopyPlan(source, sink_options({**SERVERS, "topic": "out", "checkpointLocation": "/c"}), None, "c")
    writer: Any = SimpleNamespace(producer=None, look_up=lambda _: None, check_age=aged)
    return task.RangeWriter(plan, reading(plan), writer).written([HERE])


def reading(plan: CopyPlan) -> ReadableRanges:
    return ReadableRanges.in_task(plan.source, "c", {"in": "id"})


def test_a_range_is_copied_to_the_partition_of_the_same_number(monkeypatch):
    """Of the topic that the sink names, which is asked whether it would delete the rows at once."""
    cluster, ages = Cluster(monkeypatch, ["id", "id"]), []
    assert [(stats.rows, stats.oldest_ms) for stats in copied(aged=lambda *told: ages.append(told))] == [(2, 1)]
    assert cluster.copied == [(3, 9, ("out", 0))]
    assert ages == [("out", 3)]


def test_what_is_committed_is_noted_for_the_progress(tmp_path):
    """Rows, bytes and dropped records."""
    writes = sink_options({**SERVERS, "topic": "out", "checkpointLocation": "/c"})
    noted = LastWritten(str(tmp_path))
    plan = CopyPlan(stream_options({**SERVERS, "subscribe": "in"}), writes, None, "c", written=noted)
    task.TopicRows(plan).committed(3, 5, 70, 2, 9)
    assert noted.last() == {"batch": 3, "rows": 5, "bytes": 70, "dropped": 2}


@pytest.mark.parametrize("ids", [["id", "other"], ["id", None], [None, None, "id"]], ids=["other", "gone", "is back"])
def test_a_topic_that_changes_while_it_is_read_or_left_out_fails_the_task(ids, monkeypatch):
    """At the same offsets it has other rows, and nobody knows which were read; rows of one that comes back may not be
    left out."""
    Cluster(monkeypatch, ids)
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


def transforming(monkeypatch: pytest.MonkeyPatch, values: dict[int, list[bytes]], **noted: Any) -> task.RangeWriter:
    """The writer of a query with `Learning`, whose source has these values in its partitions."""

    def read_range(fetching: Any, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
        for offset, value in enumerate(values[range_.partition], range_.start):
            rows = [{"topic": range_.topic, "partition": range_.partition, "offset": offset, "value": value}]
            yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema(False))

    writer: Any = SimpleNamespace(write=lambda batch: WriteStats(batch.rows, 0))
    monkeypatch.setattr(readable, "read_range", read_range)
    Cluster(monkeypatch, ["id"] * 9)
    columns = Columns(key=False, topic=False, partition=False, headers=False, timestamp=False)
    transform = Transform(Learning(), "learning", columns)
    options = sink_options({**SERVERS, "topic": "out", "checkpointLocation": "/c"})
    plan = CopyPlan(stream_options({**SERVERS, "subscribe": "in"}), options, transform, "c")
    return task.RangeWriter(plan, reading(plan), writer, **noted)


RANGES = (OffsetRange("in", 0, 3, 9), OffsetRange("in", 1, 0, 9), OffsetRange("in", 2, 0, 9))


def test_each_range_notes_its_own_unknown_ids(monkeypatch):
    """Those of all its chunks; a range without any has no note."""
    writer = transforming(monkeypatch, {0: [b"7", b"5", b"7"], 1: [], 2: [b"7"]})
    assert sum(stats.rows for stats in writer.written(RANGES)) == 4
    assert writer.unknown == {RANGES[0]: ("5", "7"), RANGES[2]: ("7",)}


def test_a_range_that_is_read_again_gets_its_own_note(monkeypatch):
    """And not that of another one; what it had is noted again, as it may be lost again."""
    before = {RANGES[0]: ("7",), RANGES[2]: ("9",)}
    writer = transforming(monkeypatch, {0: [b"7"], 1: [b"7"], 2: [b"7"]}, noted=before)
    assert sum(stats.rows for stats in writer.written(RANGES)) == 3
    assert writer.unknown == before


def test_a_task_with_more_runs_of_unknown_ids_than_can_be_noted_stops(monkeypatch):
    """As soon as it has them."""
    monkeypatch.setattr(unknown_ids, "MOST_NOTED", 3)
    writer = transforming(monkeypatch, {0: [b"1", b"2"], 1: [b"1"], 2: [b"3"]})
    with pytest.raises(EosError, match=r"EOS_REGISTRY_NOT_FOUND.*form 4 intervals"):
        list(writer.written(RANGES))


def test_a_topic_that_is_gone_is_a_data_loss(monkeypatch):
    """Which is an error, or leaves the range out."""
    cluster = Cluster(monkeypatch, ["other"] * 9)
    with pytest.raises(DataLossError) as caught:
        list(copied())
    assert isinstance(caught.value, EosError)
    assert list(copied(fail=False)) == []
    assert cluster.copied == []


@pytest.mark.parametrize("clusters", [("d",), ("c", "d")])
def test_another_cluster_is_an_error_whatever_may_be_lost(clusters, monkeypatch):
    """The servers may be names that lead an executor elsewhere than the driver: its topics are not those that are
    missing, and nothing is left out."""
    Cluster(monkeypatch, ["id"] * 2, clusters)
    with raises("EOS_SOURCE_CLUSTER_CHANGED"):
        list(copied(fail=False))


def test_a_topic_that_is_only_hidden_for_a_moment_is_copied(monkeypatch):
    """By a broker that lags behind: left out once, its rows are behind the query for good."""
    cluster = Cluster(monkeypatch, [None, "before", "id", "id"])
    monkeypatch.setattr(readable, "HIDDEN_S", 5.0)
    assert sum(stats.rows for stats in copied(fail=False)) == 2
    assert len(cluster.copied) == 1
