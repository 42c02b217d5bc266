"""What the numbers depend on besides the code: the machine, and what runs on it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

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


def busy_share(time_s: float) -> float:
    """The share of all cores that is in use while this one sleeps for so long: 0 to 1. By Linux's /proc/stat."""
    before = _ticks()
    time.sleep(time_s)
    busy, total = (after - was for after, was in zip(_ticks(), before, strict=True))
    return busy / total if total else 0.0


def _ticks() -> tuple[int, int]:
    """Of all cores since the start: those in use, and all."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    total = sum(ticks)
    return total - ticks[3] - ticks[4], total
