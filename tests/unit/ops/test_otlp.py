"""Metrics that are sent to an OpenTelemetry collector."""

from __future__ import annotations

import logging
import math
import socket
import urllib.request
from collections.abc import Iterator

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from prometheus_client.parser import text_string_to_metric_families

from spark_eos.errors import OptionError, UnsupportedError
from spark_eos.ops.metrics import Metrics, start
from tests.support.collector import Collector, Series, collecting
from tests.support.counting import COMMITTED, LAG
from tests.support.waiting import wait_for


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def tell(metrics: Metrics) -> None:
    """Something for each kind of metric: counters, gauges, histograms."""
    events = [
        {"event": "started", "run": "r", "name": "copies"},
        COMMITTED,
        COMMITTED | {"batch": 1, "commit_s": 40.0, "at": 101.5},
        {"event": "progress", "ran": True, "batch_s": 0.7, "rows_in": 20, "sources": ["s"]},
        {"event": "lag", "query": None, "source": "s", "lag": LAG, "losses": 2},
        {"event": "failed", "batch": 2, "lost": 1, "decided": True},
    ]
    for event in events:
        metrics._hub.take({"at": 100.0, "query": "q", "sink": None, **event})


def scraped(port: int) -> Series:
    """What the endpoint has for Prometheus, without empty labels, which are none to it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        (sample.name, frozenset((k, le(k, v)) for k, v in sample.labels.items() if v)): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("spark_eos_") and not sample.name.endswith("_created")
    }


def le(name: str, value: str) -> str:
    """Bounds are numbers, however they are written."""
    return str(float(value)) if name == "le" else value


def test_the_same_metrics_arrive_by_the_same_names(session, collector):
    """Each series of the endpoint, bucket by bucket; and nothing else of ours."""
    metrics = start(session, 0, "127.0.0.1", None, collector.address)
    tell(metrics)
    expected = scraped(metrics.port)
    metrics.close()
    arrived = {key: value for key, value in collector.series().items() if key[0].startswith("spark_eos_")}
    assert arrived == expected
    assert collector.value("rows_total", query="copies") == 20
    assert collector.value("commit_duration_seconds_bucket", query="copies", le="inf") == 2
    assert collector.value("commit_duration_seconds_bucket", query="copies", le="30.0") == 1
    assert collector.value("source_lso_lag_offsets", topic="t") == 7
    assert collector.paths == ["/v1/metrics"]


def test_they_are_what_opentelemetry_takes_them_for(session, collector, monkeypatch: pytest.MonkeyPatch):
    """Counters only rise, times are in seconds, each point says since when it counts, and who has sent it."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=night")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    metrics = start(session, None, None, None, collector.address)
    tell(metrics)
    metrics.close()
    by_name = {metric.name: metric for metric in collector.metrics()}
    rows, commits = by_name["spark_eos_rows_total"], by_name["spark_eos_commit_duration_seconds"]
    assert rows.sum.is_monotonic
    assert rows.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert (rows.unit, commits.unit, by_name["spark_eos_bytes_total"].unit) == ("", "s", "By")
    assert rows.description.startswith("Rows of")
    for point in (*rows.sum.data_points, *commits.histogram.data_points):
        assert 0 < point.start_time_unix_nano <= point.time_unix_nano
    (lag,) = by_name["spark_eos_source_lso_lag_offsets"].gauge.data_points
    assert lag.start_time_unix_nano == 0
    who = collector.resource()
    assert (who["service.name"], who["deployment.environment"]) == ("copier", "night")
    assert who["service.instance.id"]
    assert collector.headers[-1]["api-key"] == "secret"
    assert not any(math.isnan(value) for value in collector.series().values())


def test_they_are_sent_again_and_again(session, collector, monkeypatch: pytest.MonkeyPatch):
    """As often as OpenTelemetry's own variable says, and with what was counted since."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    metrics = start(session, None, None, None, collector.address)
    try:
        wait_for(lambda: len(collector.requests) > 1, "two requests")
        tell(metrics)
        wait_for(lambda: collector.value("rows_total", query="copies") == 20, "what was counted")
    finally:
        metrics.close()


def test_a_collector_that_is_away_is_told_of_once(session, caplog, monkeypatch: pytest.MonkeyPatch):
    """Whoever counts goes on; and the exporter does not log each try by itself."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "0.1")
    tries = []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        metrics = start(session, None, None, None, f"http://127.0.0.1:{free.getsockname()[1]}")
        export = metrics._sender._exporter.export
        monkeypatch.setattr(metrics._sender._exporter, "export", lambda data: tries.append(1) or export(data))
        wait_for(lambda: len(tries) > 2, "three tries")
        metrics.close()
    assert ["metrics could not be sent" in record.getMessage() for record in caplog.records] == [True]


def test_a_collector_that_refuses_is_told_of(session, collector, caplog):
    """With its answer; what others say by the exporter's logger is heard as before."""
    collector.status = 403
    metrics = start(session, None, None, None, collector.address)
    logging.getLogger("opentelemetry.exporter.otlp.proto.http.metric_exporter").warning("of somebody else")
    metrics.close()
    others, ours = (record.getMessage() for record in caplog.records)
    assert others == "of somebody else"
    assert "403" in ours


@pytest.mark.parametrize(
    "address",
    [
        "localhost:4318",
        "grpc://h:4317",
        "http://",
        "http://me:hidden@h:4318",
        "http://h:4318/v1/metrics?key=hidden",
        "http://h:x",
    ],
)
def test_an_address_that_is_none_is_refused(session, address):
    """Before anything is started; and it is not repeated, as there may be a key in it."""
    with pytest.raises(OptionError, match="http://HOST:4318") as caught:
        start(session, None, None, None, address)
    assert caught.value.condition == "EOS_METRICS_ADDRESS"
    assert "hidden" not in str(caught.value)
    assert session.registered == session.listeners == []


def test_a_path_of_ones_own_is_kept(session, collector):
    """Some collectors are behind others."""
    start(session, None, None, None, f"{collector.address}/tenant/v1/metrics").close()
    assert collector.paths == ["/tenant/v1/metrics"]


@pytest.mark.parametrize("interval", ["soon", "0", "nan", "inf"])
def test_a_variable_that_is_wrong_is_logged(session, collector, caplog, monkeypatch: pytest.MonkeyPatch, interval):
    """The query is to run all the same."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", interval)
    start(session, None, None, None, collector.address).close()
    assert ["no metrics are sent to OpenTelemetry" in record.getMessage() for record in caplog.records] == [True]
    assert collector.requests == []


@pytest.mark.parametrize(
    "missing", ["opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http", "prometheus_client"]
)
def test_it_needs_its_extra(session, collector, monkeypatch: pytest.MonkeyPatch, missing):
    """It is named before anything is started."""
    monkeypatch.setattr("spark_eos.ops.metrics.session.find_spec", lambda name: None if name == missing else name)
    with pytest.raises(UnsupportedError, match="extra 'otel'") as caught:
        start(session, None, None, None, collector.address)
    assert caught.value.condition == "EOS_METRICS_NOT_INSTALLED"
    assert session.registered == session.listeners == []
