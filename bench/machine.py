"""What the numbers depend on besides the code: the machine, and what runs on it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import threading
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from demo.processes import Process, descendants
from spark_eos.tools.devcluster.jars import KAFKA_VERSION

_CPU_INFO = Path("/proc/cpuinfo")
_PACKAGES = ("spark-eos", "pyspark", "confluent-kafka", "pyarrow")
_GIB = 1 << 30
_SECONDS = 5


def circumstances(spark: SparkSession) -> dict[str, Any]:
    """Plain data. ``cores``: those that ``local[*]`` uses. ``load_before``: the load over 1, 5 and 15 minutes."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return {
        "cpu": cpu_model(),
        "cores": jvm.java.lang.Runtime.getRuntime().availableProcessors(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GIB, 1),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": jvm.java.lang.System.getProperty("java.version"),
        "kafka": KAFKA_VERSION,
        **{package: version(package) for package in _PACKAGES},
    }


def describe(found: Mapping[str, Any]) -> tuple[str, str]:
    """`circumstances` for people: a line for the machine, and one for the versions."""
    cores = f"{found['cores']} core{'s' * (found['cores'] != 1)}"
    machine = (found["cpu"], cores, f"{found['memory_gib']:.0f} GiB", found["system"])
    versions = {
        "spark-eos": found["spark-eos"],
        "Spark": found["pyspark"],
        "Kafka": found["kafka"],
        "Python": found["python"],
        "Java": found["java"],
    }
    return ", ".join(machine), ", ".join(f"{name} {number}" for name, number in versions.items())


def cpu_model() -> str:
    """As the system names it; the architecture where it names none."""
    if _CPU_INFO.exists():
        name = re.search(r"^model name\s*:\s*(.+)$", _CPU_INFO.read_text(), re.MULTILINE)
        return _tidy(name[1]) if name else _asked("lscpu", r"^Model name:\s*(.+)$")
    return _asked("sysctl -n machdep.cpu.brand_string", r"(.+)")


def _asked(command: str, pattern: str) -> str:
    """What a program of the system answers."""
    try:
        answer = subprocess.run(command.split(), capture_output=True, text=True, timeout=_SECONDS).stdout
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    name = re.search(pattern, answer, re.MULTILINE)
    return _tidy(name[1]) if name else platform.machine()


def _tidy(name: str) -> str:
    """Without trademarks, and with single spaces."""
    return " ".join(re.sub(r"\((?:R|TM|C)\)", "", name, flags=re.IGNORECASE).split())


class Others(threading.Thread):
    """Measures which share of all cores is used by programs that this one has not started, by Linux's /proc. Those of a
    low priority count, too: between sessions, Linux may give them as much as others."""

    def __init__(self, period_s: float = 1.0) -> None:
        super().__init__(name="others", daemon=True)
        self._period_s, self._over = period_s, threading.Event()
        self._own: dict[Process, int] = {}
        self._others = 0.0
        self._first = self._last = self._ticks()

    def run(self) -> None:
        self._look()
        self._others = 0.0  # of what ran before, nothing is known
        self._first = self._last
        while not self._over.wait(self._period_s):
            self._look()

    def stop(self) -> float:
        """The share, 0 to 1, since the start."""
        self._over.set()
        self.join()
        self._look()
        total = self._last[1] - self._first[1]
        return self._others / total if total else 0.0

    def _look(self) -> None:
        family = [Process(os.getpid(), ""), *descendants(os.getpid())]
        own = {process: used for process in family if (used := _ticks_of(process.pid)) is not None}
        mine = sum(used - self._own.get(process, 0) for process, used in own.items())
        now = self._ticks()
        self._others += max(0, now[0] - self._last[0] - mine)
        self._own, self._last = own, now

    @staticmethod
    def _ticks() -> tuple[int, int]:
        """Of all cores since the start: those that programs and the kernel for them have used, and all."""
        ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(ticks[:3]), sum(ticks)


def _ticks_of(pid: int) -> int | None:
    """That a process has used; None if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[11]) + int(fields[12])
