"""What people try and cannot have: refused on the driver, in one line, with what to do instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import spark_eos
from tests.support.waiting import TIMEOUT


class Told:
    """What a person is told: the text of Spark's exception, and the reason in it."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, attempt: Callable[[], object], condition: str, says: str) -> None:
        """No task has run, and of Python's stacks there is nothing."""
        tracker = self._spark.sparkContext.statusTracker()
        jobs = set(tracker.getJobIdsForGroup(None))
        with pytest.raises(PySparkException) as caught:
            attempt()
        reason = spark_eos.reason(caught.value)
        assert reason is not None and reason.condition == condition, str(caught.value)
        assert says in str(reason)
        assert not reason.restart_helps
        own_text = str(caught.value).partition("=== Streaming Query ===")[0]
        assert not re.search("Traceback|PicklingError|UnboundLocalError|NOT_IMPLEMENTED", own_text), own_text
        ran = re.search(r"runId = ([-0-9a-f]+)", own_text)
        assert not ran or not tracker.getJobIdsForGroup(ran[1]), "tasks ran"
        assert set(tracker.getJobIdsForGroup(None)) <= jobs  # Spark forgets old ones


@pytest.fixture
def told(spark) -> Told:
    return Told(spark)


@pytest.fixture
def rows(files) -> DataFrame:
    return files().add(["a"]).stream()


@pytest.fixture
def kafka(cluster, spark) -> Callable[..., DataFrame]:
    """``kafka(reader, topic="t", …)``: the reader with options."""

    def configure(call, **options: str):
        return call.format("eos-kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers).options(**options)

    return configure


@pytest.fixture
def started(kafka, tmp_path, topic) -> Callable[..., Callable[[], None]]:
    """``started(frame, mode, …)``: a call that starts a query into a topic and waits for its end."""

    def prepare(frame: DataFrame, mode: str = "append", **options: str) -> Callable[[], None]:
        given = {"topic": topic(), "checkpointLocation": str(tmp_path / "checkpoint")} | options
        writer = kafka(frame.writeStream, **given).outputMode(mode).trigger(availableNow=True)
        return lambda: writer.start().awaitTermination(TIMEOUT)

    return prepare


def test_update_mode(rows, started, told):
    """Spark never asks us: "requirement failed: eos-kafka does not support Update mode"."""
    counted = rows.groupBy("value").count().selectExpr("value", "cast(count AS string) AS key")
    told(started(counted, "update"), "EOS_USE_UNSUPPORTED", '.outputMode("complete")')


def test_continuous_processing(spark, kafka, topic, tmp_path):
    """It is another engine, with other sources and sinks."""
    frame = kafka(spark.readStream, subscribe=topic()).load().select("value")
    writer = kafka(frame.writeStream, topic=topic(), checkpointLocation=str(tmp_path)).trigger(continuous="1 second")
    with pytest.raises(Exception, match="continuous") as caught:
        writer.start().awaitTermination(TIMEOUT)
    assert spark_eos.reason(caught.value).condition == "EOS_USE_UNSUPPORTED"


def test_a_schema_of_the_users_for_a_stream(spark, kafka, started, told, topic):
    """Spark takes it as it is, and hands it to the tasks."""
    frame = kafka(spark.readStream, subscribe=topic()).schema("value string").load()
    told(started(frame), "EOS_SCHEMA_INVALID", "Remove .schema")


def test_a_path_names_no_topic(rows, kafka, told, topic, tmp_path):
    """The rows would go to the topic of the option, or column, without a word."""
    writer = kafka(rows.writeStream, topic=topic(), checkpointLocation=str(tmp_path / "checkpoint"))
    writer = writer.trigger(availableNow=True)
    told(lambda: writer.start("flights").awaitTermination(TIMEOUT), "EOS_OPTION_INVALID", '.option("topic"')


@pytest.fixture
def to_table(spark, rows, kafka, tmp_path) -> Iterator[Callable[..., Callable[[], None]]]:
    """``to_table(topic="t")``: a call that starts a query by toTable and waits for its end."""

    def prepare(**options: str) -> Callable[[], None]:
        given = {"checkpointLocation": str(tmp_path / "checkpoint")} | options
        writer = kafka(rows.writeStream, **given).trigger(availableNow=True)
        return lambda: writer.toTable("refused_stream").awaitTermination(TIMEOUT)

    yield prepare
    spark.sql("DROP TABLE IF EXISTS refused_stream")


def test_a_table_names_no_topic(spark, to_table, told):
    """Spark makes one in its catalog and leaves it there, as the hint says; no task runs."""
    told(to_table(), "EOS_SCHEMA_INVALID", '.toTable("…"), is not a topic; drop the empty table that the latter leaves')
    assert spark.catalog.tableExists("refused_stream")
    spark.sql("DROP TABLE refused_stream")
    assert not spark.catalog.tableExists("refused_stream")


def test_a_table_beside_a_topic_is_not_written_to(spark, to_table, topic, view):
    """Spark tells the sink nothing of the table, so that nobody can refuse it: the rows go to the topic."""
    name = topic()
    to_table(topic=name)()
    assert view.values(name) == ["a"]
    assert spark.catalog.tableExists("refused_stream")
