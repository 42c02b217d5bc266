"""Copies from a compacted topic, on a broker whose cleaner runs all the time, also between a kill
and the replay: rows are those of a read_committed consumer, or the query stops by name."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView, Row, open_view
from tests.support.kills.scene import topics_of
from tests.support.queries.copies import CopiedFrom, copied, shouted
from tests.support.queries.source_calls import Writer
from tests.support.spark.session_faults import armed
from tests.support.waiting import TIMEOUT, wait_for

pytestmark = pytest.mark.chaos

# No histories are judged here: tombstones have no value, others come again, and the cleaner takes away what was read.

DUMP = "org.apache.kafka.tools.DumpLogSegments"
#: Nothing is cleaned until a test says so: else, on a busy machine, the first to read may find all of it clean.
COMPACTED = {
    "cleanup_policy": "compact",
    "min_compaction_lag_ms": str(10**9),
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.01",
}
PARTITIONS = 2
#: The key of rows that are there only for the cleaner's sake, and which it may take at any time.
ROLL = b"roll"
WAYS = pytest.mark.parametrize("transform", [None, shouted], ids=["copy", "transform"])


class Compacted:
    """A compacted topic, and who writes to it."""

    def __init__(self, cluster: DevCluster, view: KafkaView, name: str) -> None:
        self.cluster, self.view, self.name = cluster, view, name
        self._plain = Writer(cluster, transactional=False)
        self._transactional = Writer(cluster, transactional=True)
        self._numbers = itertools.count()

    def feed(self) -> None:
        """Of each partition: keys that are replaced, some of them by others' aborted rows only, and tombstones."""
        for p in range(PARTITIONS):
            for i in range(200):
                key = b"k%d" % (i % 40 if i % 5 else 1000 + i)
                value = None if i % 23 == 0 else b"%d.%d.%d" % (next(self._numbers), p, i)
                self._plain.producer.produce(self.name, value, key, partition=p)
            assert self._plain.producer.flush(TIMEOUT) == 0
            for end in ("commit", "abort"):
                self._transactional.producer.begin_transaction()
                self._transactional.put(self.name, *(f"{end}{i}" for i in range(20)), partition=p, key=b"k1")
                getattr(self._transactional.producer, f"{end}_transaction")(10)

    def clean(self) -> None:
        """Let the cleaner run over all that is there, and then no more. New rows roll the active segment, which is
        never cleaned; they have a key of their own."""
        ends, before = self.view.ends(self.name), self.visible()
        self.view.configure(self.name, min_compaction_lag_ms=0)
        for p in range(PARTITIONS):
            own = [row for row in before if row.partition == p and row.key != ROLL]
            last = {row.key: row.offset for row in own}
            wanted = {row.offset for row in own if last[row.key] == row.offset}

            def cleaned(p: int = p, wanted: set[int] = wanted) -> bool:
                self._plain.put(self.name, b"roll", partition=p, key=ROLL)
                rows = [row for row in self.visible() if row.partition == p and row.key != ROLL]
                return {row.offset for row in rows if row.offset < ends[self.name, p]} == wanted

            wait_for(cleaned, f"the cleaner in partition {p}", 300.0)
        self.view.configure(self.name, min_compaction_lag_ms=10**9)

    def visible(self) -> list[Row]:
        """What a read_committed consumer sees."""
        wait_for(lambda: not self.view.held(self.name), "the markers")
        return self.view.rows(self.name)


@pytest.fixture(scope="module")
def cleaning() -> Iterator[DevCluster]:
    """A broker whose cleaner looks for work ten times a second."""
    with DevCluster(config={"log.cleaner.backoff.ms": "100"}) as cluster:
        yield cluster


@pytest.fixture
def source(cleaning) -> Iterator[Compacted]:
    with open_view(cleaning.bootstrap_servers) as view:
        yield Compacted(cleaning, view, topics_of(cleaning)(PARTITIONS, **COMPACTED))


@pytest.fixture
def query(source, spark, tmp_path) -> Iterator[CopiedFrom]:
    yield CopiedFrom(spark, source.view, tmp_path / "query", source.name, topics_of(source.cluster)(PARTITIONS))
    for running in spark.streams.active:
        running.stop()


def horizons(cluster: DevCluster, topic: str) -> int:
    """Record batches that a cleaner has marked with a delete horizon, by Kafka's own tool."""
    data = cluster.broker(0).data
    logs = ",".join(str(log) for p in range(PARTITIONS) for log in (data / f"{topic}-{p}").glob("*.log"))
    return len(re.findall(r"deleteHorizonMs: OptionalLong\[", cluster.java_tool(DUMP, "--files", logs)))


def made(transform: Callable | None, rows: list[Row]) -> dict[int, list]:
    """What a query makes of rows that a consumer sees: of each partition, in order."""
    own = [row for row in rows if row.key != ROLL]
    if transform is None:
        return copied(own)
    return {p: [(row.key, row.value.upper()) for row in own if row.partition == p and row.value] for p in range(2)}


def seen(transform: Callable | None, query: CopiedFrom) -> dict[int, list]:
    rows = [row for row in query.rows() if row.key != ROLL]
    if transform is None:
        return copied(rows)
    return {p: [(row.key, row.value) for row in rows if row.partition == p] for p in range(2)}


@WAYS
@pytest.mark.parametrize("limit", [None, 70])
def test_the_rows_are_those_of_a_consumer(transform, limit, source, query):
    """Gaps, tombstones, delete horizons; with a limit, ranges that begin and end in gaps, and ranges without a row."""
    query.reads = {"maxOffsetsPerTrigger": limit}
    source.feed()
    written = sum(source.view.ends(source.name).values())
    source.clean()
    assert 0 < len(source.visible()) < written / 2
    assert horizons(source.cluster, source.name) > 0
    query.run(transform)
    first, ends = made(transform, source.visible()), source.view.ends(source.name)
    assert seen(transform, query) == first
    source.feed()
    source.clean()
    query.run(transform)
    later = [row for row in source.visible() if row.offset >= ends[source.name, row.partition]]
    assert seen(transform, query) == {p: rows + made(transform, later)[p] for p, rows in first.items()}
    assert horizons(source.cluster, query.target) == 0


def died(query: CopiedFrom, point: str, folder: Path, transform: Callable | None) -> str:
    """Run it until the process that comes to this point for the second time is killed there; the query's id."""
    with armed(query.spark, f"{point}=die@2", folder / "faults") as fault:  # micro-batch 0 is empty
        started = query.start(transform)
        fault.wait()
        with pytest.raises(StreamingQueryException):
            started.awaitTermination(TIMEOUT)
    return started.id


@WAYS
def test_a_cleaner_between_a_kill_and_a_replay_of_what_is_not_decided(transform, source, query, tmp_path):
    """The rows are those that are left."""
    source.feed()
    died(query, "commit.entered", tmp_path, transform)
    source.clean()
    query.run(transform)
    assert seen(transform, query) == made(transform, source.visible())


@WAYS
def test_a_cleaner_between_a_loss_and_its_repair(transform, source, query, tmp_path):
    """Nobody can write the lost rows again as they were: the query stops, and nothing of the repair is visible."""
    source.feed()
    lost = died(query, "commit.decided", tmp_path, transform)
    for name in source.view.open_transactions(lost):
        source.view.end_transaction(name, commit=False)
    source.clean()
    query.stopped_by("EOS_REPAIR_SOURCE_CHANGED", transform)
    assert query.rows() == []
    assert source.view.open_transactions(lost) == set()
