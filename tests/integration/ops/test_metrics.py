"""Metrics of real queries, as Prometheus would scrape them."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.owners import Cluster
from spark_eos.ops.metrics import Metrics, hub
from spark_eos.ops.metrics.recording import EventFile
from spark_eos.ops.timeline import timeline_of
from spark_eos.ops.top import top
from spark_eos.options.table import DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX
from tests.support.judges.kafka_view import KafkaView
from tests.support.queries.sink_queries import Sink, kafka_frame
from tests.support.spark.session_faults import Fault, armed
from tests.support.waiting import TIMEOUT, wait_for

PARTITIONS, ROWS = 2, 20


CONF = Path(__file__).parents[3] / "conf"
OF_RUNNING_SOURCES = {
    f"spark_eos_source_{name}" for name in ("lso_lag_offsets", "high_watermark_lag_offsets", "lso_stalled_seconds")
} | {"spark_eos_source_held_partitions"}


def used() -> set[str]:
    """Names of metrics in the dashboard and the alerts."""
    text = "".join((CONF / name).read_text() for name in ("grafana.json", "alerts.yaml"))
    return set(re.findall(r"\bspark_eos_[a-z_]+", text))


class Scraped:
    """The endpoint's samples: ``value("rows_total", query="copies")``."""

    def __init__(self, port: int) -> None:
        self._port = port

    def value(self, name: str, **labels: str) -> float | None:
        """Of the sample with these labels, whatever others it has; None where there is none."""
        found = [
            sample.value
            for family in self.families()
            for sample in family.samples
            if sample.name == f"spark_eos_{name}" and labels.items() <= sample.labels.items()
        ]
        assert len(found) < 2, f"{name}{labels} is {found}"
        return found[0] if found else None

    def has(self, name: str) -> bool:
        """Whether there is a sample of this full name."""
        return any(sample.name == name for family in self.families() for sample in family.samples)

    def families(self) -> list:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=TIMEOUT) as answer:
            return list(text_string_to_metric_families(answer.read().decode()))


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@pytest.fixture
def metrics(spark, events: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Metrics]:
    monkeypatch.setattr(hub, "_READ_S", TIMEOUT)  # what is lost on the way is not counted
    metrics = spark_eos.metrics(spark, 0, host="127.0.0.1", events=str(events))
    yield metrics
    for query in spark.streams.active:
        query.stop()
    metrics.close()


@pytest.fixture
def copies(spark, cluster, tmp_path) -> Callable[..., StreamingQuery]:
    """``copies(source, out, **trigger)`` starts the query of that name, from one topic to another."""

    def start(source: str, out: str, **trigger: object) -> StreamingQuery:
        sink = Sink(cluster, tmp_path, topic=out, queryName="copies")
        return sink.start(kafka_frame(spark, cluster, source), **trigger)

    return start


def feed(write: Callable, topic: str) -> None:
    for partition in range(PARTITIONS):
        write(topic, *(f"{partition} {n}" for n in range(ROWS)), partition=partition)


def lose_one(fault: Fault, view: KafkaView, query: str) -> None:
    """When the micro-batch is decided, one of its transactions is aborted, as if it had expired."""
    fault.wait()
    view.end_transaction(min(view.open_transactions(query)), commit=False)
    fault.release()


def test_a_loss_and_its_repair_are_counted(spark, metrics, copies, write, topic, view, tmp_path, events):
    """A decided transaction is lost, the query fails, is started again, and writes the lost rows: the endpoint has
    the rows that readers see, each once, and says what happened on the way. So does the file of events."""
    source, out = topic(PARTITIONS), topic(PARTITIONS)
    scraped = Scraped(metrics.port)
    feed(write, source)
    query = copies(source, out)
    assert query.awaitTermination(TIMEOUT)
    assert len(view.values(out)) == PARTITIONS * ROWS
    wait_for(lambda: scraped.value("rows_total", query="copies") == PARTITIONS * ROWS, "the rows")
    assert scraped.value("replays_total", query="copies") == 0
    feed(write, source)
    with armed(spark, "commit.decided=hold", tmp_path / "faults") as fault, ThreadPoolExecutor(1) as pool:
        losing = pool.submit(lose_one, fault, view, query.id)
        spark_eos.run(lambda: copies(source, out), attempts=1, pause_s=0.05)
        losing.result()
    written = sum(len(value) for value in view.values(out))
    wait_for(lambda: scraped.value("query_running", query="copies") == 0, "the end of the query")
    counted = {
        "rows_total": 2 * PARTITIONS * ROWS,
        "bytes_total": written,
        "replays_total": 1,
        "repairs_total": 1,
        "query_generation": 4,  # three runs, one of which was given up
        "open_transactions": 0,
        "input_rows_total": 2 * PARTITIONS * ROWS,
    }
    assert len(view.values(out)) == counted["rows_total"]
    assert {name: scraped.value(name, query="copies") for name in counted} == counted
    lost = {"query": "copies", "condition": "EOS_TRANSACTION_LOST"}
    assert scraped.value("failures_total", **lost) == scraped.value("restarts_total", **lost) == 1
    assert scraped.value("transactions_total", query="copies", outcome="lost") == 1
    assert scraped.value("end_txn_duration_seconds_count", query="copies") >= 2
    assert scraped.value("last_commit_timestamp_seconds", query="copies") > 0
    assert {name for name in used() if not scraped.has(name)} == OF_RUNNING_SOURCES
    timeline = timeline_of(EventFile(events).read(), "copies")
    assert [batch.outcome for batch in timeline.batches][-2:] == ["EOS_TRANSACTION_LOST", "repaired"]
    assert [run.how for run in timeline.runs] == ["stopped", "EOS_TRANSACTION_LOST", "stopped"]
    kept = [event["event"] for event in EventFile(events).read()]
    assert {"process", "started", "prepared", "committed", "failed", "aborted", "restart", "terminated"} <= set(kept)
    metrics.close()


def test_a_last_stable_offset_that_stands_still_is_seen_from_outside(metrics, cluster, copies, topic, transactions):
    """While somebody's transaction is open in the input, and nothing is there to read, the endpoint has its lag and
    for how long that stands, and top names it; and nothing of it when the transaction has ended."""
    source, out = topic(1), topic(1)
    scraped = Scraped(metrics.port)
    transactions.producer.begin_transaction()
    transactions.put(source, "held")
    query = copies(source, out, processingTime="50 milliseconds")
    labels = {"query": "copies", "topic": source}
    wait_for(lambda: (scraped.value("source_lso_stalled_seconds", **labels) or 0) >= 1, "a stalled offset")
    assert scraped.value("source_held_partitions", **labels) == 1
    assert scraped.value("source_high_watermark_lag_offsets", **labels) == 1
    assert scraped.value("source_lso_lag_offsets", **labels) == 0
    assert all(scraped.has(name) for name in OF_RUNNING_SOURCES)
    client = broker_client(KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers}))
    place = Cluster(client, DEFAULT_LEDGER_TOPIC, DEFAULT_PREFIX)
    seen = top(f"http://127.0.0.1:{metrics.port}", "copies", place).data
    (held,) = seen["blocking"]
    assert (held["topic"], held["partition"]) == (source, 0)
    assert transactions.transactional_id in held["text"]
    assert seen["lag"][0]["stalled_s"] >= 1
    transactions.producer.commit_transaction(TIMEOUT)
    wait_for(lambda: scraped.value("source_held_partitions", **labels) == 0, "the end of the transaction")
    wait_for(lambda: scraped.value("rows_total", query="copies") == 1, "the row")
    query.stop()
    wait_for(lambda: scraped.value("source_held_partitions", **labels) is None, "the end of the query")
