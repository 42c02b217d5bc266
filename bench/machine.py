"""What the numbers depend on besides the code: the machine, and what runs on it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import threading
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import psutil
from pyspark.sql import SparkSession

from demo.processes import Process, descendants
from spark_eos.tools.devcluster.jars import KAFKA_VERSION

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
        "memory_gib": round(psutil.virtual_memory().total / _GIB, 1),
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
    """As lscpu names it, without trademarks; the architecture where there is none."""
    try:
        answer = subprocess.run(["lscpu"], capture_output=True, text=True, timeout=_SECONDS).stdout
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    name = re.search(r"^Model name:\s*(.+)$", answer, re.MULTILINE)
    return re.sub(r"\((?:R|TM|C)\)", "", name[1]) if name else platform.machine()


class Others(threading.Thread):
    """Measures which share of all cores is used by programs that this one has not started. Those of a low priority
    count, too: between sessions, Linux may give them as much as others."""

    def __init__(self, period_s: float = 1.0) -> None:
        super().__init__(name="others", daemon=True)
        self._period_s, self._over = period_s, threading.Event()
        self._own: dict[Process, float] = {}
        self._others = 0.0
        self._first = self._last = _used()

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
        own = {}
        for process in (Process(), *descendants(os.getpid())):
            with contextlib.suppress(psutil.NoSuchProcess):
                own[process] = sum(process.cpu_times()[:2])
        mine = sum(used - self._own.get(process, 0.0) for process, used in own.items())
        now = _used()
        self._others += max(0.0, now[0] - self._last[0] - mine)
        self._own, self._last = own, now


def _used() -> tuple[float, float]:
    """Seconds of all cores since the start of the machine: those that programs and the kernel for them have used, and
    all."""
    times = psutil.cpu_times()
    return sum(times[:3]), sum(times[:8])
