"""Turns metrics on for a session and its process."""

from __future__ import annotations

import atexit
import contextlib
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

import spark_eos
from spark_eos._version import __version__
from spark_eos.base import metrics_events
from spark_eos.base.log import logger
from spark_eos.errors import stop
from spark_eos.ops.metrics.hub import Consumer, Hub, Inbox
from spark_eos.ops.metrics.listener import QueryListener
from spark_eos.ops.metrics.recording import Recent, Recorder

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession

    from spark_eos.ops.metrics.endpoint import Endpoint

#: The default host. A client that reaches the endpoint can read names and keep the driver busy: users may open it.
_THIS_MACHINE = "127.0.0.1"
_LAST_EVENT_S = 1.0


class Metrics:
    """The metrics that `spark_eos.metrics` has turned on, until they are closed. ``port``: None without an endpoint."""

    def __init__(self, spark: SparkSession, hub: Hub, inbox: Inbox | None, endpoint: Endpoint | None) -> None:
        self._spark, self._hub, self._inbox, self._endpoint = spark, hub, inbox, endpoint
        self.port = endpoint.port if endpoint is not None else None
        self._listener = QueryListener(hub)
        spark.streams.addListener(self._listener)
        metrics_events.tell_to(inbox.events if inbox is not None else metrics_events.NOWHERE)
        spark_eos.register(spark)
        atexit.register(self._leave)

    def close(self) -> None:
        """Turn metrics off. Running queries continue; their events are lost."""
        metrics_events.tell_to(metrics_events.NOWHERE)
        with contextlib.suppress(Exception):  # the session may have ended
            self._spark.streams.removeListener(self._listener)
            spark_eos.register(self._spark)
        self._close()

    def _leave(self) -> None:
        """Wait for Spark's events about the end of its queries when the process ends by itself, then remove the
        listener, which must not be called in a process that ends."""
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


def start(spark: SparkSession, port: int | None, host: str | None, file: str | None, *more: Consumer) -> Metrics:
    """See `spark_eos.metrics`. ``more``: further consumers of the events. Raises UnsupportedError if ``port`` is given
    and the endpoint's library is not installed. Any other problem is logged: no query fails because of its metrics."""
    check(port)
    consumers: list[Consumer] = [*more]
    endpoint = None
    if port is not None:
        recent = Recent()
        endpoint = _endpoint(host or _THIS_MACHINE, port, _registry(consumers), recent)
        consumers += [recent] if endpoint is not None else []
    if file is not None:
        try:
            consumers.append(Recorder(file))
        except OSError as error:
            logger.warning("no events are kept: %s", error)
    hub = Hub(consumers)
    hub.take({"event": "process", "at": time.time(), "version": __version__})
    try:
        inbox = Inbox(hub)
    except (OSError, AttributeError) as error:  # no Unix sockets, or no folder for one
        inbox = None
        logger.warning("commits are not counted, as their socket could not be created: %s", error)
    return Metrics(spark, hub, inbox, endpoint)


def check(port: int | None) -> None:
    """Raise UnsupportedError if an endpoint is wanted and its library is not installed. ``port``: None for no
    endpoint."""
    if port is not None and find_spec("prometheus_client") is None:
        raise stop("EOS_NOT_INSTALLED.extra", use="The metrics' endpoint", modules="prometheus_client", extra="metrics")


def _registry(consumers: list[Consumer]) -> CollectorRegistry:
    """Return a registry of the metrics, and one more consumer, which keeps them up to date."""
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
    except (OSError, OverflowError, ValueError) as error:  # no port, or no name of a host, can be such
        logger.warning("there is no endpoint for metrics at port %d: %s", port, error)
        return None
