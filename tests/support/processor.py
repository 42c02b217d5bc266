"""How much processor time Spark's processes use while they wait, or meet a fault: a query must not spin."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from jobs._demo.processes import descendants

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: In /proc/…/stat behind the name: user and system time of its own, and of its children that have ended.
_TIMES = slice(11, 15)
_SPARKS = (b"org.apache.spark.deploy.SparkSubmit", b"-m\0pyspark.", b"/query.py\0")
#: What a query may use from a fault to its end: so many seconds for what it does, and a share of each second besides.
#: A process that spins uses all of it.
WORK_S, CORES = 20.0, 0.5


class Load:
    """Spark's processes below this one, from now on: its JVM, its Python workers, and the program of a query."""

    def __init__(self) -> None:
        self._began, self._before, self._most = time.monotonic(), _used_s(), 0.0

    def cores(self) -> float:
        """Processor seconds used for each second that has passed."""
        return self.used_s() / (time.monotonic() - self._began)

    def used_s(self) -> float:
        """Processor seconds used, as far as they were seen: ask again and again where processes end."""
        self._most = max(self._most, _used_s() - self._before)
        return self._most

    def check(self) -> float:
        """The same; it fails where that is more than a query needs that works and waits."""
        used, seconds = self.used_s(), time.monotonic() - self._began
        assert used <= WORK_S + CORES * seconds, f"{used:.1f} s of processor time in {seconds:.1f} s: something spins"
        return used


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
