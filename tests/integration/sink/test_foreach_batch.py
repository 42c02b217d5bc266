"""`spark_eos.batch_writer`: writes within foreachBatch, once for each sink and micro-batch, whatever fails between."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spark_eos
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.runs.case_cover import one_for_every_day
from tests.support.spark.session_faults import armed
from tests.support.waiting import wait_for

Function = Callable[[DataFrame, int], None]


class Query:
    """A query of one file for each micro-batch, which runs until it has read all, or fails."""

    def __init__(self, spark: SparkSession, folder: Path, function: Function) -> None:
        self.spark, self._folder, self.function = spark, folder, function
        self._input = folder / "input"
        self._input.mkdir(parents=True)
        self._files = 0

    def feed(self, *values: str) -> None:
        """One more micro-batch."""
        file = self._input / f"{self._files:03}.txt"
        file.write_text("\n".join(values) + "\n")
        os.utime(file, (self._files, self._files))  # Spark takes the oldest first
        self._files += 1

    def run(self) -> None:
        rows = self.spark.readStream.schema("value STRING").option("maxFilesPerTrigger", 1).text(str(self._input))
        writer = rows.repartition(2).writeStream.foreachBatch(self.function)
        writer = writer.option("checkpointLocation", str(self._folder / "c")).trigger(availableNow=True)
        writer.start().awaitTermination()

    def fails(self, condition: str | None = None) -> spark_eos.Reason | None:
        with pytest.raises(StreamingQueryException) as raised:
            self.run()
        found = spark_eos.reason(raised.value)
        if condition is not None:
            assert found is not None and found.condition == condition, raised.value
        return found


class Topics:
    """Two topics, writes to them, and what is there."""

    def __init__(self, cluster: DevCluster, view: KafkaView, *names: str) -> None:
        self.servers, self.view, self.names = cluster.bootstrap_servers, view, names

    def write(self, rows: DataFrame, batch: int, topic: int, **named: str) -> None:
        writer = spark_eos.batch_writer(rows, batch, **named)
        writer.option("kafka.bootstrap.servers", self.servers).option("topic", self.names[topic]).save()

    def there(self, topic: int) -> list[str]:
        """All rows, when the markers are written."""
        wait_for(lambda: not self.view.held(self.names[topic]), "the markers")
        return sorted(self.view.values(self.names[topic]))


@pytest.fixture
def topics(cluster: DevCluster, view: KafkaView, topic: Callable[..., str]) -> Topics:
    return Topics(cluster, view, topic(2), topic(2))


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[Function], Query]]:
    yield lambda function: Query(spark, tmp_path / uuid.uuid4().hex, function)
    for active in spark.streams.active:
        active.stop()


@pytest.mark.parametrize(
    "point",
    one_for_every_day(
        "the second sink", ["prepare.flushed", "commit.entered", "commit.decided", "commit.between", "commit.cleaned"]
    ),
)
def test_a_process_that_dies_in_the_second_sink(point, query, topics, tmp_path):
    """The first sink's rows are there and are not written again; the second one's are written, or were decided."""

    def function(rows: DataFrame, batch: int) -> None:
        topics.write(rows, batch, 0)
        if batch == 1 and not died:
            died.append(1)
            with armed(rows.sparkSession, f"{point}=die", tmp_path / "faults"):
                topics.write(rows, batch, 1)
        else:
            topics.write(rows, batch, 1)

    died: list[int] = []
    q = query(function)
    q.feed("a", "b", "c")
    q.feed("d", "e", "f")
    q.feed("g")
    q.fails()
    ends = topics.view.ends_at_rest(topics.names[0])
    assert topics.there(0) == list("abcdef")
    q.run()
    assert died
    assert topics.there(0) == topics.there(1) == list("abcdefg")
    # One micro-batch of one row, and its marker: nothing of micro-batch 1 was written again.
    assert sum(topics.view.ends(topics.names[0]).values()) <= sum(ends.values()) + 2


@pytest.mark.parametrize(
    ("point", "decided"),
    one_for_every_day("a swallowed error", [("commit.decided", True), ("commit.verified", False)]),
)
def test_an_error_that_the_function_swallows(point, decided, query, topics, tmp_path):
    """Spark passes the micro-batch. The next write stops, and the next start commits what was decided; what was not
    decided is missing, which every start says."""

    def function(rows: DataFrame, batch: int) -> None:
        if batch != 1:
            return topics.write(rows, batch, 0)
        try:
            with armed(rows.sparkSession, f"{point}=die", tmp_path / "faults"):
                topics.write(rows, batch, 0)
        except Exception as error:
            swallowed.append(error)
        return None

    swallowed: list[Exception] = []
    q = query(function)
    q.feed("a", "b")
    q.feed("c", "d")
    q.feed("e", "f")
    if decided:
        q.fails("EOS_RUN_CLOSED")
        q.run()
        assert topics.there(0) == list("abcdef")
    else:
        q.fails("EOS_WRITE_LEFT_BEHIND")
        found = q.fails("EOS_WRITE_LEFT_BEHIND")
        assert "The write of micro-batch 1 failed, and was not repeated: Spark is at micro-batch 2" in found.message
        assert topics.there(0) == ["a", "b"]
    assert len(swallowed) == 1


def test_a_write_that_is_tried_again_in_its_micro_batch(query, topics):
    """By the function, or by the next start when the function has raised."""

    def function(rows: DataFrame, batch: int) -> None:
        for topic in ("there-is-none", topics.names[0]):
            writer = spark_eos.batch_writer(rows, batch, sink="s").option("kafka.bootstrap.servers", topics.servers)
            try:
                writer.option("topic", topic).save()
            except Exception:
                if raises and batch == 1:
                    raises.pop()
                    raise

    raises = [True]
    q = query(function)
    for value in "abc":
        q.feed(value)
    q.fails("EOS_TOPIC_MISSING")
    q.run()
    assert topics.there(0) == ["a", "b", "c"]


def test_writes_that_nobody_can_name_are_refused(query, topics, spark):
    """df.write in the function, which would double at a replay, and batch_writer outside of one."""
    plain = {"kafka.bootstrap.servers": topics.servers, "topic": topics.names[0]}
    q = query(lambda rows, batch: rows.write.format("eos-kafka").mode("append").options(**plain).save())
    q.feed("a")
    found = q.fails("EOS_USE_UNSUPPORTED")
    assert "spark_eos.batch_writer" in found.hint
    with pytest.raises(spark_eos.errors.UnsupportedError, match=r"EOS_USE_UNSUPPORTED.*batch_writer"):
        spark_eos.batch_writer(spark.range(1), 0)
    q = query(lambda rows, batch: topics.write(rows, batch + 1, 0))
    q.feed("a")
    q.fails("EOS_USE_UNSUPPORTED")
    assert topics.there(0) == []


def test_a_query_that_is_named(spark, topics):
    """Where Spark does not tell, the user does: the same write again writes nothing, another query's is another."""
    rows, name = spark.createDataFrame([("a",)], "value STRING"), str(uuid.uuid4())
    topics.write(rows, 7, 0, query=name)
    topics.write(rows, 7, 0, query=name)
    topics.write(rows, 8, 0, query=name)
    topics.write(rows, 8, 0, query=str(uuid.uuid4()))
    assert topics.there(0) == ["a", "a", "a"]
