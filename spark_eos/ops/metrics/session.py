"""Turns metrics on, for a session and the process that it is in."""

from __future__ import annotations

import atexit
import contextlib
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

import spark_eos
from spark_eos import metrics_events
from spark_eos._version import __version__
from spark_eos.errors import stop
from spark_eos.log import logger
from spark_eos.ops.metrics.hub import Consumer, Hub, Inbox
from spark_eos.ops.metrics.listener import QueryListener
from spark_eos.ops.metrics.recording import Recent, Recorder

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession

    from spark_eos.ops.metrics.endpoint import Endpoint

#: Whoever can reach the endpoint can read names, and keep the driver busy: others are let in by the user alone.
_THIS_MACHINE = "127.0.0.1"
_LAST_EVENT_S = 1.0


class Metrics:
    """What `spark_eos.metrics` has turned on, until it is closed. ``port`` is None where there is no endpoint."""

    def __init__(self, spark: SparkSession, hub: Hub, inbox: Inbox | None, endpoint: Endpoint | None) -> None:
        self._spark, self._hub, self._inbox, self._endpoint = spark, hub, inbox, endpoint
        self.port = endpoint.port if endpoint is not None else None
        self._listener = QueryListener(hub)
        spark.streams.addListener(self._listener)
        metrics_events.tell_to(inbox.events if inbox is not None else metrics_events.NOWHERE)
        spark_eos.register(spark)
        atexit.register(self._leave)

    def close(self) -> None:
        """Turn metrics off. Queries that run go on, and what they tell is lost."""
        metrics_events.tell_to(metrics_events.NOWHERE)
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


def start(spark: SparkSession, port: int | None, host: str | None, file: str | None) -> Metrics:
    """See `spark_eos.metrics`. Raises UnsupportedError where an endpoint is asked for and not installed; any other
    problem is logged, as no query is to fail because of its metrics."""
    check(port)
    recent = Recent()
    consumers: list[Consumer] = [recent]
    endpoint = None
    if port is not None:
        endpoint = _endpoint(host or _THIS_MACHINE, port, _registry(consumers), recent)
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
    return Metrics(spark, hub, inbox, endpoint)


def check(port: int | None) -> None:
    """Raise UnsupportedError unless what an endpoint needs is installed; ``port`` is None where there is none."""
    if port is not None and find_spec("prometheus_client") is None:
        raise stop("EOS_NOT_INSTALLED.metrics")


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
