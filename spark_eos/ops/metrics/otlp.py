"""Sends metrics to an OpenTelemetry collector, by OTLP over HTTP.

Names, labels and buckets are those of the Prometheus endpoint, as the collector's receiver `prometheus` would have
them: counters are monotonic sums whose names end with ``_total``, a name that ends with its unit has that as its unit,
too, and a label without a value is left out. So metrics that get to Prometheus this way have the same names again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http import metric_exporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

from spark_eos._version import __version__
from spark_eos.errors import OptionError
from spark_eos.log import logger

_PATH = "/v1/metrics"
_EVERY_MS = "OTEL_METRIC_EXPORT_INTERVAL"
_EVERY_S = 60.0
#: How long the end of a process waits for a collector that does not answer.
_LAST_S = 5.0
_UNITS = {"seconds": "s", "bytes": "By"}
_CUMULATIVE = AggregationTemporality.CUMULATIVE
_Labels = tuple[tuple[str, str], ...]


def checked(address: str) -> str:
    """Where metrics are sent to, by the collector's address. Raises OptionError, which does not repeat the address:
    there could be a key in it."""
    try:
        parts = urlsplit(address)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        fits = fits and not (parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        fits = False
    if not fits:
        raise OptionError(
            "EOS_METRICS_ADDRESS",
            "Metrics cannot be sent to the address for OpenTelemetry.",
            hint="Use the collector's http://HOST:4318, which takes OTLP over HTTP. Keys belong in the environment's "
            "OTEL_EXPORTER_OTLP_HEADERS.",
            option="otlp",
        )
    return address if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}{_PATH}"


class OtlpSender:
    """Sends all metrics of a registry each minute, or as often as ``OTEL_METRIC_EXPORT_INTERVAL`` says, and once more
    when it is closed. The exporter's other variables, ``OTEL_…``, have their usual meaning. Raises ValueError where one
    of them is wrong."""

    def __init__(self, address: str, registry: CollectorRegistry, service: str) -> None:
        self._registry = registry
        self._resource = _resource(service)
        self._every_s = _interval()
        self._began = time.time()
        self._exporter = metric_exporter.OTLPMetricExporter(endpoint=address)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eos otlp", daemon=True)
        self._said = _Said(self._thread)
        logging.getLogger(metric_exporter.__name__).addFilter(self._said)
        self._thread.start()

    def close(self) -> None:
        """Send what is new; a collector that does not answer is waited for 5 s."""
        self._closing.set()
        self._thread.join(_LAST_S)
        self._exporter.shutdown()
        logging.getLogger(metric_exporter.__name__).removeFilter(self._said)

    def _run(self) -> None:
        warned = False
        closing = False
        while not closing:
            closing = self._closing.wait(self._every_s)
            if not self._sent() and not warned:
                logger.warning("metrics could not be sent: %s", self._said.last)
                warned = True

    def _sent(self) -> bool:
        try:
            data = metrics_data(self._registry, self._resource, self._began, time.time())
            return self._exporter.export(data) is MetricExportResult.SUCCESS
        except Exception as error:
            self._said.last = f"{type(error).__name__}: {error}"
            return False


class _Said(logging.Filter):
    """Takes what the exporter logs in our thread, at each try: it is said once."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__()
        self._thread = thread
        self.last = "no reason is known"

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self._thread.ident:
            return True
        self.last = record.getMessage()
        return False


def _resource(service: str) -> Resource:
    """Who sends: ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` have the last word."""
    own = {"service.name": service, "service.version": __version__, "service.instance.id": str(uuid.uuid4())}
    return Resource(own).merge(OTELResourceDetector().detect())


def _interval() -> float:
    """In seconds. Raises ValueError."""
    text = os.environ.get(_EVERY_MS, "")
    seconds = float(text) / 1000 if text else _EVERY_S
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise ValueError(f"{_EVERY_MS} is {text}")
    return seconds


def metrics_data(registry: CollectorRegistry, resource: Resource, began: float, now: float) -> MetricsData:
    """All that a registry has, as OpenTelemetry's model has it. ``began``: since when it counts, in seconds of the
    epoch, for what does not say that itself."""
    metrics = [metric for family in registry.collect() for metric in _metrics(family, _nanos(began), _nanos(now))]
    scope = ScopeMetrics(InstrumentationScope("spark_eos", __version__), metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource, [scope], schema_url="")])


def _metrics(family: Family, began: int, now: int) -> Iterator[Metric]:
    data: Sum | Histogram | Gauge
    name = family.name
    if family.type == "counter":
        name += "_total"
        data = Sum(list(_numbers(family, name, began, now)), _CUMULATIVE, is_monotonic=True)
    elif family.type == "histogram":
        data = Histogram(list(_histograms(family, began, now)), _CUMULATIVE)
    else:
        data = Gauge(list(_numbers(family, name, None, now)))
    if data.data_points:  # a metric that nothing has told of has none
        yield Metric(name, family.documentation, _unit(name), data)


def _unit(name: str) -> str:
    return _UNITS.get(name.removesuffix("_total").rpartition("_")[2], "")


def _numbers(family: Family, name: str, began: int | None, now: int) -> Iterator[NumberDataPoint]:
    """``began`` is None for what has no beginning."""
    since = _created(family)
    for sample in family.samples:
        if sample.name == name:
            start = began and since.get(_labels(sample), began)
            yield NumberDataPoint(_attributes(sample), start or 0, now, sample.value)


def _histograms(family: Family, began: int, now: int) -> Iterator[HistogramDataPoint]:
    since = _created(family)
    series: dict[_Labels, list[Sample]] = {}
    for sample in family.samples:
        series.setdefault(_labels(sample), []).append(sample)
    for labels, samples in series.items():
        value = {sample.name.removeprefix(family.name): sample.value for sample in samples}
        upto = [(float(s.labels["le"]), int(s.value)) for s in samples if s.name == f"{family.name}_bucket"]
        counts = [high - low for low, high in zip([0, *(n for _, n in upto)], (n for _, n in upto), strict=False)]
        yield HistogramDataPoint(
            _attributes(samples[0]),
            since.get(labels, began),
            now,
            int(value["_count"]),
            value["_sum"],
            counts,
            [bound for bound, _ in upto[:-1]],  # the last one is infinite
            min=None,  # type: ignore[arg-type]  # nobody knows them, which the exporter takes
            max=None,  # type: ignore[arg-type]
        )


def _created(family: Family) -> dict[_Labels, int]:
    """Since when each series is counted."""
    return {_labels(s): _nanos(s.value) for s in family.samples if s.name == f"{family.name}_created"}


def _labels(sample: Sample) -> _Labels:
    """Which series a sample belongs to."""
    return tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))


def _attributes(sample: Sample) -> dict[str, str]:
    return {name: value for name, value in _labels(sample) if value}


def _nanos(time_s: float) -> int:
    return int(time_s * 1e9)
