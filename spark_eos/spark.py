"""What not every version of Spark has, asked for by name and never by the version's number."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

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
    "worker_uses_tcp",
]


def worker_uses_tcp() -> bool:
    """Whether this process is a Python worker to which Spark talks over TCP, although it could use a Unix socket."""
    is_worker = "PYTHON_WORKER_FACTORY_SECRET" in os.environ
    by_file = os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false").lower() == "true"
    return is_worker and not by_file and hasattr(socket, "AF_UNIX")
