"""Turns metrics on, for a session and the process that it is in."""

from __future__ import annotations

import atexit
import contextlib
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

import spark_eos
from spark_eos import events
from spark_eos._version import __version__
from spark_eos.errors import UnsupportedError
from spark_eos.log import logger
from spark_eos.ops.metrics.hub import Consumer, Hub, Inbox
from spark_eos.ops.metrics.listener import QueryListener
from spark_eos.ops.metrics.recording import Recent, Recorder

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession

    from spark_eos.ops.metrics.endpoint import Endpoint
    from spark_eos.ops.metrics.otlp import OtlpSender

#: Whoever can reach the endpoint can read names, and keep the driver busy: others are let in by the user alone.
_THIS_MACHINE = "127.0.0.1"
_LAST_EVENT_S = 1.0


class Metrics:
    """What `spark_eos.metrics` has turned on, until it is closed. ``port`` is None where there is no endpoint."""

    def __init__(
        self, spark: SparkSession, hub: Hub, inbox: Inbox | None, endpoint: Endpoint | None, sender: OtlpSender | None
    ) -> None:
        self._spark, self._hub, self._inbox, self._endpoint, self._sender = spark, hub, inbox, endpoint, sender
        self.port = endpoint.port if endpoint is not None else None
        self._listener = QueryListener(hub)
        spark.streams.addListener(self._listener)
        events.tell_to(inbox.events if inbox is not None else events.NOWHERE)
        spark_eos.register(spark)
        atexit.register(self._leave)

    def close(self) -> None:
        """Turn metrics off. Queries that run go on, and what they tell is lost."""
        events.tell_to(events.NOWHERE)
        with contextlib.suppress(Exception):  # the session may have ended
            self._spark.streams.removeListener(self._listener)
            spark_eos.register(self._spark)
        self._close()

    def _leave(self) -> None:
        """The process ends, by itself. What Spark said of its queries' ends before that is waited for; then it must not
        call any more, as nobody would be there."""
        self._listener.wait(_LAST_EVENT_S)
        with contextlib.suppress(Exception):  # the JVM may have ended
            self._spark.streams.removeListener(self._listener)
        self._hub.take({"event": "exit", "at": time.time()})
        self._close()

    def _close(self) -> None:
        atexit.unregister(self._leave)
        if self._inbox is not None:
            self._inbox.close()
        if self._endpoint is not None:
            self._endpoint.close()
        if self._sender is not None:
            self._sender.close()


def start(
    spark: SparkSession, port: int | None, host: str | None, file: str | None, otlp: str | None = None
) -> Metrics:
    """See `spark_eos.metrics`. Raises UnsupportedError where what is asked for is not installed, and OptionError for an
    invalid address; any other problem is logged, as no query is to fail because of its metrics."""
    check(port, otlp)
    recent = Recent()
    consumers: list[Consumer] = [recent]
    endpoint, sender = None, None
    if port is not None or otlp is not None:
        registry = _registry(consumers)
        endpoint = _endpoint(host or _THIS_MACHINE, port, registry, recent) if port is not None else None
        sender = _sender(otlp, registry, spark) if otlp is not None else None
    if file is not None:
        try:
            consumers.append(Recorder(file))
        except OSError as error:
            logger.warning("no events are kept: %s", error)
    hub = Hub(consumers)
    hub.take({"event": "process", "at": time.time(), "version": __version__})
    try:
        inbox = Inbox(hub)
    except (OSError, AttributeError) as error:  # no Unix sockets, or no place for one
        inbox = None
        logger.warning("commits are not counted, as their socket could not be created: %s", error)
    return Metrics(spark, hub, inbox, endpoint, sender)


def check(port: int | None, otlp: str | None) -> None:
    """Raise UnsupportedError unless what these ask for is installed, and OptionError for an invalid address."""
    if port is not None:
        _check_installed("prometheus_client", "The metrics' endpoint", "metrics")
    if otlp is not None:
        for module in ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk", "prometheus_client"):
            _check_installed(module, "Sending metrics to OpenTelemetry", "otel")
        from spark_eos.ops.metrics.otlp import checked

        checked(otlp)


def _check_installed(module: str, what: str, extra: str) -> None:
    try:
        found = find_spec(module)
    except ModuleNotFoundError:  # not even what it is in
        found = None
    if found is None:
        raise UnsupportedError(
            "EOS_METRICS_NOT_INSTALLED",
            f"{what} needs the Python module '{module}', which is not installed.",
            hint=f"Install the extra '{extra}' of spark-eos.",
        )


def _registry(consumers: list[Consumer]) -> CollectorRegistry:
    """The metrics, kept by one more consumer."""
    from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

    from spark_eos.ops.metrics.exporter import Exporter

    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    consumers.append(Exporter(registry))
    return registry


def _endpoint(host: str, port: int, registry: CollectorRegistry, recent: Recent) -> Endpoint | None:
    from spark_eos.ops.metrics.endpoint import Endpoint

    try:
        return Endpoint(host, port, registry, recent)
    except OSError as error:
        logger.warning("there is no endpoint for metrics at port %d: %s", port, error)
        return None


def _sender(address: str, registry: CollectorRegistry, spark: SparkSession) -> OtlpSender | None:
    from spark_eos.ops.metrics.otlp import OtlpSender, checked

    try:
        return OtlpSender(checked(address), registry, _application(spark))
    except Exception as error:  # of many kinds, where a variable of the environment is wrong
        logger.warning("no metrics are sent to OpenTelemetry: %s", error)
        return None


def _application(spark: SparkSession) -> str:
    """The application's name, by which OpenTelemetry knows who sends."""
    return spark.conf.get("spark.app.name", "") or "spark-eos"
