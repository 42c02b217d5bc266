"""Spark Connect: a client without a JVM; source, sink, batch writes and foreachBatch on a server of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.connect.streaming.query import StreamingQuery

import spark_eos
from tests.support.judges.kafka_view import KafkaView, write
from tests.support.kills import query
from tests.support.spark.connect import ConnectServer, connect_server
from tests.support.waiting import wait_for

ROWS = 20
ROWS_PER_BATCH = 16
VALUES = [(p, f"{p}.{i}") for p in (0, 1) for i in range(ROWS)]
EXPECTED = sorted(query.expected(value) for _, value in VALUES)

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with connect_server(tmp_path_factory.mktemp("connect") / "server") as server:
        yield server


@pytest.fixture(scope="module")
def session(server: ConnectServer) -> Iterator[SparkSession]:
    """A client's session, with the data source registered."""
    session = server.session()
    spark_eos.register(session)
    yield session
    session.stop()


@pytest.fixture
def spec(view: KafkaView, topic: Callable[..., str], tmp_path: Path) -> query.Spec:
    source, out = topic(2), topic(2)
    write(view.bootstrap_servers, source, VALUES, commit=True)
    checkpoint, group = str(tmp_path / "checkpoint"), f"group-{out}"
    return query.Spec(view.bootstrap_servers, source, out, checkpoint, group, ROWS_PER_BATCH, available_now=False)


def there(view: KafkaView, topic: str) -> list[str]:
    """All values, when the markers are written."""
    wait_for(lambda: not view.held(topic), "the markers")
    return sorted(view.values(topic))


def is_drained(view: KafkaView, spec: query.Spec) -> bool:
    """Whether the group has the offsets of all that is in the input, and all that was decided is committed."""
    return view.group(spec.group, spec.input) == view.ends(spec.input) and not view.held(spec.output)


@pytest.mark.chaos
def test_a_server_that_is_killed_after_a_decision(session, spec, view, tmp_path):
    """The query goes on on another server, from the same checkpoint."""
    with connect_server(tmp_path / "killed", "commit.decided=hold@3") as server:
        victim = server.session()
        spark_eos.register(victim)
        query.start(victim, spec)
        server.wait_at("commit.decided")
    running = query.start(session, spec)
    wait_for(lambda: is_drained(view, spec), "the end of the input")
    running.stop()
    assert there(view, spec.output) == EXPECTED


@pytest.mark.chaos
def test_a_query_that_run_starts_again(server, session, spec, view):
    """spark_eos.run knows the error of a query on a server, and that it had finished a micro-batch."""

    def start() -> StreamingQuery:
        started.append(query.start(session, spec))
        return started[-1]

    started: list[StreamingQuery] = []
    restarts: list[spark_eos.Restart] = []
    server.arm("commit.verified=die@3")
    spark_eos.run(start, attempts=1, pause_s=0, stop=lambda: is_drained(view, spec), on_restart=restarts.append)
    assert [(r.reason.condition, r.attempt) for r in restarts] == [("EOS_WORKER_DIED", 1)]
    assert all(any(map(spark_eos.datasource.restarts._of_a_batch, one.recentProgress)) for one in started)
    assert there(view, spec.output) == EXPECTED


def each(servers: str, topics: list[str], failed: Path, name: str | None) -> Callable[[DataFrame, int], None]:
    """A function for foreachBatch that writes to two topics; it fails once between them, in micro-batch 1."""

    def function(rows: DataFrame, batch: int) -> None:
        for i, topic in enumerate(topics):
            if (batch, i) == (1, 1) and not failed.exists():
                failed.touch()
                raise RuntimeError("between the sinks")
            writer = spark_eos.batch_writer(rows.select("value"), batch, query=name)
            writer.option("kafka.bootstrap.servers", servers).option("topic", topic).save()

    return function


def start_each(session: SparkSession, spec: query.Spec, function: Callable[[DataFrame, int], None]) -> StreamingQuery:
    rows = session.readStream.format("eos-kafka").option("kafka.bootstrap.servers", spec.bootstrap_servers)
    rows = rows.option("subscribe", spec.input).option("startingOffsets", "earliest")
    rows = rows.option("maxOffsetsPerTrigger", spec.rows_per_batch).load()
    writer = rows.writeStream.foreachBatch(function).option("checkpointLocation", spec.checkpoint)
    return writer.start()


@pytest.mark.chaos
def test_foreach_batch_that_fails_between_two_sinks(session, spec, view, topic, tmp_path):
    """The query is named, as Spark does not tell its id: no sink gets a row twice, and none is left out."""
    topics = [spec.output, topic(1)]
    function = each(spec.bootstrap_servers, topics, tmp_path / "failed", str(uuid.uuid4()))
    with pytest.raises(PySparkException, match="between the sinks"):
        start_each(session, spec, function).awaitTermination()
    running = start_each(session, spec, function)
    wait_for(lambda: len(view.values(topics[1])) >= len(VALUES), "all rows in the second sink")
    running.stop()
    assert [there(view, topic) for topic in topics] == [sorted(value for _, value in VALUES)] * 2


def test_errors_cross_from_the_server_to_the_client(session, spec, view, tmp_path):
    """Of a stream, raised and asked for, of foreachBatch without a name, and of a batch write: condition and hint."""

    def error(run: Callable[[], object]) -> spark_eos.Reason | None:
        with pytest.raises(PySparkException) as caught:
            run()
        return spark_eos.reason(caught.value)

    def write_rows(**options: str) -> None:
        rows = session.createDataFrame([("a",)], "value STRING").write.format("eos-kafka").mode("append")
        rows.option("kafka.bootstrap.servers", spec.bootstrap_servers).options(**options).save()

    unnamed = each(spec.bootstrap_servers, [spec.output], tmp_path / "failed", None)
    found = error(lambda: start_each(session, spec, unnamed).awaitTermination())
    assert found.condition == "EOS_USE_UNSUPPORTED" and 'query="…"' in found.hint
    assert error(lambda: write_rows(topic="missing")).condition == "EOS_TOPIC_MISSING"
    bad = query.Spec(**{**vars(spec), "sink": {"offset.group.id": "g"}, "checkpoint": f"{spec.checkpoint}-2"})
    failed = query.start(session, bad)
    raised = error(failed.awaitTermination)
    assert raised.condition == "EOS_OPTION_UNKNOWN"
    assert spark_eos.reason(failed.exception()) == raised


def test_a_batch_write_and_a_batch_read(session, spec, view):
    """The same write again writes nothing."""
    rows = session.createDataFrame([("a",), ("b",)], "value STRING")
    for _ in range(2):
        writer = rows.write.format("eos-kafka").mode("append").option("job.id", spec.output)
        writer.option("kafka.bootstrap.servers", spec.bootstrap_servers).option("topic", spec.output).save()
    assert there(view, spec.output) == ["a", "b"]
    read = session.read.format("eos-kafka").option("kafka.bootstrap.servers", spec.bootstrap_servers)
    assert read.option("subscribe", spec.output).load().count() == 2
