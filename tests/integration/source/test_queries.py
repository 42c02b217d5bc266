"""Streaming queries over the source, by Spark."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_eos.tools.devcluster import DevCluster
from tests.support.queries.source_calls import topics
from tests.support.spark.spark_versions import needs_admission_control
from tests.support.waiting import TIMEOUT


class Query:
    """A streaming query over the source that collects what it reads, with the id of its micro-batch."""

    def __init__(self, spark, cluster: DevCluster, checkpoint: Path, topics: str, **options: object) -> None:
        self.rows: list[tuple[int, str]] = []
        self.fail_in: int | None = None
        self._arrived = threading.Condition()
        stream = spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        stream = stream.option("subscribe", topics)
        for key, value in options.items():
            stream = stream.option(key, value)
        self.frame = stream.load()
        self._writer = self.frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(self._collect)

    def _collect(self, frame, batch_id: int) -> None:
        if batch_id == self.fail_in:
            raise RuntimeError("the test wants this micro-batch to fail")
        rows = [(batch_id, row.value.decode()) for row in frame.collect()]
        with self._arrived:
            self.rows += rows
            self._arrived.notify_all()

    def start(self, **trigger: object):
        return (self._writer.trigger(**trigger) if trigger else self._writer).start()

    def wait(self, values: set[str], timeout: float = TIMEOUT) -> None:
        with self._arrived:
            assert self._arrived.wait_for(lambda: values <= {value for _, value in self.rows}, timeout), self.rows

    @property
    def values(self) -> list[str]:
        return [value for _, value in self.rows]


@pytest.fixture
def query(spark, cluster, tmp_path) -> Iterator[Callable[..., Query]]:
    yield lambda topics, **options: Query(spark, cluster, tmp_path / "checkpoint", topics, **options)
    for active in spark.streams.active:
        active.stop()


def test_a_query_reads_what_is_stable_and_goes_on_after_a_restart(query, topic, write, transactions):
    """Two topics, a running stream, an open transaction, a stop in between."""
    names = [topic(2), topic(1)]
    write(names[0], "a", partition=1)
    write(names[1], "b")
    first = query(",".join(names), startingOffsets="earliest", maxOffsetsPerTrigger=1)
    running = first.start()
    first.wait({"a", "b"})
    transactions.producer.begin_transaction()
    transactions.put(names[0], "open")
    write(names[0], "hidden")
    write(names[1], "c")
    first.wait({"c"})
    running.processAllAvailable()  # its commit log is written too; otherwise the restart replays 'c', as it should
    running.stop()
    assert sorted(first.values) == ["a", "b", "c"]
    transactions.producer.commit_transaction(TIMEOUT)
    second = query(",".join(names), startingOffsets="earliest")
    running = second.start()
    second.wait({"open", "hidden"})
    running.stop()
    assert second.values == ["open", "hidden"]


@needs_admission_control
def test_available_now_drains_and_ends(query, topic, write, tmp_path):
    """On a new query, and again on its checkpoint; the offset log has the built-in source's form."""
    name = topic(2)
    write(name, *"abc", partition=1)
    first = query(name, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    assert first.start(availableNow=True).awaitTermination(TIMEOUT)
    assert first.rows == [(1, "a"), (1, "b"), (2, "c")]
    write(name, "d")
    second = query(name)
    assert second.start(availableNow=True).awaitTermination(TIMEOUT)
    assert second.rows == [(3, "d")]
    logged = (tmp_path / "checkpoint/offsets/3").read_text().splitlines()[-1]
    assert topics(json.loads(logged)) == {name: {"0": 1, "1": 3}}


def test_two_sources_in_one_query(spark, query, cluster, topic, write):
    """Each begins where it shall; none takes the other's rows."""
    names = [topic(), topic()]
    write(names[0], "a")
    write(names[1], "b")
    both = query(names[0], startingOffsets="earliest")
    other = query(names[1], startingOffsets="earliest")
    both._writer = both.frame.union(other.frame).writeStream.foreachBatch(both._collect)
    running = both._writer.trigger(availableNow=True).start()
    assert running.awaitTermination(TIMEOUT)
    assert sorted(both.values) == ["a", "b"]
