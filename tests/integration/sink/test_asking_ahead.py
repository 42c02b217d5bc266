"""What a task asks about its topic while it waits for its first row: real brokers, and no Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewPartitions
from pyspark.sql.types import IntegerType, StringType, StructType

from spark_eos.kafka.admin.topics import topic_partitions
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net import client as client_module
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.net.connection import Connection
from spark_eos.kafka.net.metadata import METADATA
from spark_eos.options.parse import sink_options
from spark_eos.protocol.task import TaskReport
from spark_eos.sink import attempt, task
from spark_eos.sink.job import Identity, SinkJob
from spark_eos.sink.schema import check_columns
from spark_eos.sink.spark_rows import SparkRows
from tests.support.judges.kafka_view import TIMEOUT, KafkaView
from tests.support.models.open_query import checked
from tests.support.waiting import wait_for

Rows = Iterator[pa.RecordBatch]


@dataclass
class Tasks:
    """Those of one run of a query, each with its rows. ``asked``: the APIs of all requests since the last `clear`."""

    topic: str
    job: SinkJob
    view: KafkaView
    asked: list[int]
    query: str
    number: int = -1

    def write(self, rows: Rows) -> TaskReport:
        self.number += 1
        own = Identity(self.query, "run", 0, self.number, 0)
        return task.run_task(task.Task.for_job(broker_client(self.job.options.kafka), self.job, own), rows)

    @property
    def times(self) -> int:
        """How often brokers were asked for topics."""
        return self.asked.count(METADATA.api)


def a_row(partition: int | None = None) -> pa.RecordBatch:
    columns = {"value": pa.array(["a"]), "partition": pa.array([partition], pa.int32())}
    return pa.RecordBatch.from_pydict(columns)


@pytest.fixture
def tasks(cluster, view, topic, monkeypatch) -> Tasks:
    """The first has opened the run, and has made the process know the cluster."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic(1)}
    options, schema = sink_options(given), StructType().add("value", StringType()).add("partition", IntegerType())
    monkeypatch.setattr(client_module, "_FIRST_TRY_S", TIMEOUT)
    asked: list[int] = []
    job = SinkJob(options, checked(options), SparkRows(check_columns(schema, given["topic"])))
    tasks = Tasks(given["topic"], job, view, asked, str(uuid.uuid4()))
    tasks.write(iter([a_row()]))
    send = Connection.ask

    def ask(self: Connection, api: int, *arguments: Any, **more: Any) -> int:
        asked.append(api)
        return send(self, api, *arguments, **more)

    monkeypatch.setattr(Connection, "ask", ask)
    return tasks


def waiting(tasks: Tasks, then: Callable[[], pa.RecordBatch]) -> Rows:
    """Rows that come only after the topic was asked for."""
    wait_for(lambda: tasks.times, "a question about the topic")
    yield then()


def test_a_topic_is_asked_for_while_the_first_row_is_awaited(tasks, monkeypatch):
    """Once: no answer is waited for when the row is there."""
    monkeypatch.setattr(attempt, "AHEAD_S", TIMEOUT)  # however long the machine takes to the row
    assert tasks.write(waiting(tasks, a_row)).rows == 1
    assert tasks.times == 1


def test_a_task_without_rows_does_not_ask(tasks, monkeypatch):
    """As most tasks behind a shuffle: it is known by then that there are none."""
    start = task._start
    monkeypatch.setattr(task, "_start", lambda one, waited: start(one, waited) if waited.wait(TIMEOUT) else None)
    assert tasks.write(iter(())).rows == 0
    assert tasks.times == 0
    assert tasks.asked  # it has asked for other things


def test_a_row_for_a_partition_that_was_added_while_it_was_awaited(tasks, monkeypatch):
    """An answer from long before the first row does not count."""
    monkeypatch.setattr(attempt, "AHEAD_S", 0.0)

    def added() -> pa.RecordBatch:
        tasks.view.admin.create_partitions([NewPartitions(tasks.topic, 2)])[tasks.topic].result(TIMEOUT)
        kafka = KafkaProperties({"bootstrap.servers": tasks.view.bootstrap_servers})
        wait_for(lambda: topic_partitions(broker_client(kafka), [tasks.topic]) == {tasks.topic: 2}, "the partition")
        return a_row(1)

    report = tasks.write(waiting(tasks, added))
    assert report.written.probe.partition == 1
