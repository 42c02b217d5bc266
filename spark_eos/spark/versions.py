"""Features that not every version of Spark has, detected by their names and never by the version's number."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before Spark 4.2

    class ReadLimit:  # type: ignore[no-redef]  # the same in little, for a Spark that never asks for it
        """How much a micro-batch may read."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """All that is there."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """So many rows."""

        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Marks a source that reads up to a fixed end."""


__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "in_session",
    "worker_uses_tcp",
]


@contextmanager
def in_session(spark: SparkSession) -> Iterator[None]:
    """Make the session the active one of this thread, for as long as this lasts.

    Spark looks up data sources that were registered with a session in the active session of the thread, of which a
    thread that the user has started has none (DATA_SOURCE_NOT_FOUND). With Spark Connect, the server sees to it.
    """
    own = getattr(spark, "_jsparkSession", None)
    if own is None:
        yield
        return
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]  # there is a JVM
    before = sessions.getActiveSession()
    sessions.setActiveSession(own)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def worker_uses_tcp() -> bool:
    """Return whether this process is a Python worker to which Spark talks over TCP, although it could use a Unix
    socket."""
    is_worker = "PYTHON_WORKER_FACTORY_SECRET" in os.environ
    by_file = os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false").lower() == "true"
    return is_worker and not by_file and hasattr(socket, "AF_UNIX")
