"""How much processor time Spark's processes use while they wait: a query that waits must not spin."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from jobs._demo.processes import descendants

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: In /proc/…/stat behind the name: user and system time of its own, and of its children that have ended.
_TIMES = slice(11, 15)
_SPARKS = (b"org.apache.spark.deploy.SparkSubmit", b"-m\0pyspark.")


class Load:
    """Spark's processes below this one, from now on: its JVM, and its Python workers."""

    def __init__(self) -> None:
        self._began, self._before = time.monotonic(), _used_s()

    def cores(self) -> float:
        """Processor seconds used for each second that has passed."""
        return (_used_s() - self._before) / (time.monotonic() - self._began)


def _used_s() -> float:
    ticks = 0
    for process in descendants(os.getpid()):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            folder = Path(f"/proc/{process.pid}")
            command = (folder / "cmdline").read_bytes()
            if any(part in command for part in _SPARKS):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[_TIMES]))
    return ticks / _TICKS_PER_S
