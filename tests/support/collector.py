"""A collector of OpenTelemetry's metrics: takes OTLP over HTTP, and reads it by OpenTelemetry's own schemas."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

#: By the names and labels that Prometheus has for them.
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Collector:
    """What has arrived, the latest last. ``status`` is what it answers."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.status = 200
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[Mapping[str, str]] = []
        self.paths: list[str] = []

    def metrics(self) -> list[Metric]:
        """Of the latest request."""
        (resource,) = self.requests[-1].resource_metrics
        (scope,) = resource.scope_metrics
        return list(scope.metrics)

    def resource(self) -> dict[str, str]:
        """Who has sent the latest request."""
        (resource,) = self.requests[-1].resource_metrics
        return {pair.key: pair.value.string_value for pair in resource.resource.attributes}

    def series(self) -> Series:
        """Of the latest request, as Prometheus would have them in its text format."""
        return dict(pair for metric in self.metrics() for pair in _series(metric))

    def value(self, name: str, **labels: str) -> float | None:
        """Of the series with these labels, whatever others it has; None where there is none."""
        found = [v for (n, has), v in self.series().items() if n == f"spark_eos_{name}" and labels.items() <= has]
        assert len(found) < 2, f"{name}{labels} is {found}"
        return found[0] if found else None


def _series(metric: Metric) -> Iterator[tuple[tuple[str, frozenset[tuple[str, str]]], float]]:
    data = getattr(metric, metric.WhichOneof("data"))
    for point in data.data_points:
        labels = frozenset((pair.key, pair.value.string_value) for pair in point.attributes)
        if metric.WhichOneof("data") != "histogram":
            yield (metric.name, labels), point.as_double if point.HasField("as_double") else point.as_int
            continue
        assert data.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        bounds = [*point.explicit_bounds, float("inf")]
        for number, bound in enumerate(bounds):
            below = sum(point.bucket_counts[: number + 1])
            yield (f"{metric.name}_bucket", labels | {("le", str(bound))}), below
        yield (f"{metric.name}_count", labels), point.count
        yield (f"{metric.name}_sum", labels), point.sum


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            collector.paths.append(self.path)
            collector.requests.append(ExportMetricsServiceRequest.FromString(body))
            answer = ExportMetricsServiceResponse().SerializeToString()
            self.send_response(collector.status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Not a line for each request."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield collector
        server.shutdown()
        thread.join()
