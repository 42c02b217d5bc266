"""Rows that somebody takes out of an open transaction: an operator, by Kafka's own tools, or retention."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_eos.cli import main
from spark_eos.errors import EosError
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.options.parse import SinkOptions, sink_options
from spark_eos.protocol.commit import commit
from spark_eos.protocol.head import Head, Pair, Verdict, Written
from spark_eos.protocol.names import TaskId, task_name
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.protocol.ports import Ports
from spark_eos.protocol.task import MicroBatch, TaskReport, Work
from spark_eos.sink.session import Session
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import TIMEOUT
from tests.support.models.dying_driver import Killed, kill
from tests.support.models.open_query import Opening, session_of
from tests.support.queries.sink_queries import ended_by
from tests.support.spark.session_faults import armed

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
TIMEOUT_MS = 600_000
PARTITIONS = 2


@dataclass
class Query:
    """A query on a real cluster, whose steps a test takes by hand."""

    cluster: DevCluster
    options: SinkOptions
    id: str
    own: Session

    def open(self, run: str) -> Head:
        prefix = self.options.prefix
        return open_run(self.own.ports, NewRun(run, 0, prefix=prefix))

    def prepared(self, head: Head, began_ms: int) -> MicroBatch:
        """A row in each partition, in one open transaction."""
        name = task_name(self.options.prefix, self.id, TaskId(head.generation, 0, 0))
        producer = ArrowProducer(broker_client(self.options.kafka), name, TIMEOUT_MS)
        producer.init()
        rows = {"value": pa.array([b"a", b"b"]), "partition": pa.array([0, 1], pa.int32())}
        producer.write(self.options.topic, PARTITIONS, **rows)
        producer.flush()
        producer.close()
        pair = producer.identity()
        begins = [self.own.coordinator.first_record(pair, [(self.options.topic, number)]) for number in (0, 1)]
        written = Written(0, pair, 2, 2, begins[0], begins=tuple(begins))
        return MicroBatch(head.run, 0, (TaskReport(Work.WRITE, 0, 2, 2, written, began_ms, TIMEOUT_MS),))

    def killed_when_decided(self) -> Ports:
        def reach(point: str) -> None:
            if point == "commit.decided":
                kill()

        return replace(self.own.ports, reach=reach)

    def abort_in_partition_1(self, pair: Pair) -> None:
        state = self.own.ports.data.partition(self.options.topic, 1)
        start = state.open[pair.producer_id, pair.epoch]
        place = ["--topic", self.options.topic, "--partition", "1", "--start-offset", str(start)]
        self.tool("abort", *place)

    def settle_without_broken(self) -> None:
        servers = self.cluster.bootstrap_servers
        command = ["--bootstrap-servers", servers, "recover", "--settle-only", "--query", self.id, "--watch", "0"]
        assert main([*command, "--yes"]) == 2
        assert (
            main([*command, "--abort-broken", "--yes"]) == 1
        )  # there is something left to be done: to start the query

    def tool(self, *arguments: str) -> str:
        return self.cluster.java_tool(TRANSACTIONS, "--bootstrap-server", self.cluster.bootstrap_servers, *arguments)


def deleted(admin: AdminClient, topic: str, *partitions: int) -> None:
    """Delete all rows that are there."""
    for future in admin.delete_records([TopicPartition(topic, number, OFFSET_END) for number in partitions]).values():
        assert future.result(TIMEOUT).low_watermark > 0


@pytest.fixture
def query(cluster: DevCluster, topic: Callable[..., str]) -> Query:
    options = sink_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic(PARTITIONS)})
    query = str(uuid.uuid4())
    return Query(cluster, options, query, session_of(options, query))


def test_a_decision_with_a_partition_aborted_is_repaired_as_the_hint_says(query, view):
    """The next run stops; when the rest of the transaction is aborted, it finds it lost, to be written again."""
    batch = query.prepared(query.open("first"), began_ms=int(time.time() * 1000))
    (pair,) = batch.pairs
    with pytest.raises(Killed):
        commit(query.killed_when_decided(), batch)
    query.abort_in_partition_1(pair)
    with pytest.raises(EosError, match=f"--query {query.id} --settle-only --abort-broken") as caught:
        query.open("second")
    assert caught.value.condition == "EOS_DECISION_BROKEN"
    query.settle_without_broken()
    (written,) = query.open("third").decision.written
    assert written.verdict is Verdict.LOST
    assert view.values(query.options.topic) == []


def test_a_query_whose_old_rows_are_deleted_before_their_commit(sink, files, topic, view, spark, tmp_path):
    """Retention may take rows of the day before at once: the query stops, and its next start writes them again."""
    out = topic(PARTITIONS, retention_ms=-1)
    rows = [(str(number), number % PARTITIONS, datetime.now() - timedelta(days=1)) for number in range(10)]
    stream = files("value string, partition int, timestamp timestamp").add(rows).stream()
    query = sink(topic=out)
    with armed(spark, "commit.entered=hold", tmp_path / "faults") as fault:
        started = query.start(stream)
        fault.wait()
        deleted(view.admin, out, *range(PARTITIONS))
        fault.release()
        assert "retention has moved the log's start" in ended_by(started, "EOS_TRANSACTION_BROKEN")
    assert view.values(out) == []
    query.run(stream)
    assert sorted(view.values(out)) == sorted(value for value, *_ in rows)


def test_a_task_reports_where_its_transaction_begins(cluster, topic, view):
    """In each partition that it has written to, behind what was there before."""
    name = topic(PARTITIONS)
    behind = 0
    for mark in "abc":
        task = Opening({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": name})
        written = task.write("run", [f"{mark}{number}" for number in range(40)]).written
        task.session.coordinator.end({written.pair: written.endtxn_version}, commit=True)
        firsts: dict[int, int] = {}
        for row in view.rows(name):
            if row.value.startswith(mark.encode()):
                firsts[row.partition] = min(row.offset, firsts.get(row.partition, row.offset))
        assert {probe.partition: probe.offset for probe in written.begins} == firsts
        assert written.probe in written.begins
        behind += sum(offset > 0 for offset in firsts.values())
    assert behind  # one of the two partitions has been written to twice
