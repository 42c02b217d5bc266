"""Rows that somebody takes out of an open transaction: an operator, by Kafka's own tools, or retention."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_eos.cli import main
from spark_eos.errors import EosError
from spark_eos.protocol.commit import commit
from spark_eos.protocol.head import Verdict
from spark_eos.protocol.task import MicroBatch
from tests.support.judges.kafka_view import TIMEOUT
from tests.support.models.dying_driver import Killed, kill
from tests.support.models.open_query import Opening
from tests.support.queries.sink_queries import ended_by
from tests.support.spark.session_faults import armed

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
PARTITIONS = 2


def deleted(admin: AdminClient, topic: str, *partitions: int) -> None:
    """Delete all rows that are there."""
    for future in admin.delete_records([TopicPartition(topic, number, OFFSET_END) for number in partitions]).values():
        assert future.result(TIMEOUT).low_watermark > 0


def test_a_decision_with_a_partition_aborted_is_repaired_as_the_hint_says(cluster, topic, view):
    """The next run stops; when the rest of the transaction is aborted, it finds it lost, to be written again."""
    name, servers = topic(PARTITIONS), cluster.bootstrap_servers
    query = Opening({"kafka.bootstrap.servers": servers, "topic": name})
    report, ports = query.write("first", [str(number) for number in range(40)]), query.session.ports
    with pytest.raises(Killed):
        commit(
            replace(ports, reach=lambda point: kill() if point == "commit.decided" else None),
            MicroBatch("first", 0, (report,)),
        )
    pair = report.written.pair
    start = ports.data.partition(name, 1).open[pair.producer_id, pair.epoch]
    place = ["--topic", name, "--partition", "1", "--start-offset", str(start)]
    cluster.java_tool(TRANSACTIONS, "--bootstrap-server", servers, "abort", *place)
    with pytest.raises(EosError, match=f"--query {query.query} --settle-only --abort-broken") as caught:
        query.open("second")
    assert caught.value.condition == "EOS_DECISION_BROKEN"
    settle = ["--bootstrap-servers", servers, "recover", "--settle-only", "--query", query.query, "--watch", "0"]
    assert main([*settle, "--yes"]) == 2
    assert main([*settle, "--abort-broken", "--yes"]) == 1  # there is something left to be done: to start the query
    assert query.open("third") == "third"
    (written,) = ports.ledger.read().decision.written
    assert written.verdict is Verdict.LOST
    assert view.values(name) == []


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
