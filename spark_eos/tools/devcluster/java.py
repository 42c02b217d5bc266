"""Finds the Java that runs the broker and Ivy."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from spark_eos.errors import stop

MINIMUM_VERSION = 17


@dataclass(frozen=True)
class Java:
    """`version`: the feature release (17, 21, …). `build`: the output of `java -version`."""

    path: str
    version: int
    build: str


def find_java() -> Java:
    """Return a Java of version 17 or newer: JAVA_HOME's, or else the PATH's.

    Raises DevClusterError EOS_JAVA_NOT_FOUND when there is none, or when it is too old.
    """
    java = _ask(_candidate())
    if java.version < MINIMUM_VERSION:
        raise stop(
            "EOS_JAVA_NOT_FOUND", why=f"{java.path} is Java {java.version}, but Spark and Apache Kafka need 17 or newer"
        )
    return java


def _candidate() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise stop("EOS_JAVA_NOT_FOUND", why=f"JAVA_HOME is {home}, but there is no program {java}")
        return str(java)
    java_of_path = shutil.which("java")
    if java_of_path is None:
        raise stop("EOS_JAVA_NOT_FOUND", why="no `java` on the PATH, and no JAVA_HOME")
    return java_of_path


@functools.lru_cache
def _ask(path: str) -> Java:
    try:
        answer = subprocess.run([path, "-version"], check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise stop("EOS_JAVA_NOT_FOUND", why=f"{path} could not be run: {error}") from error
    output = without_environment(answer.stderr + answer.stdout).strip()
    # "17.0.15", "21", "25-ea"; Java 8 and older call themselves "1.8.0_452".
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    if answer.returncode != 0 or match is None:
        # macOS has a `java` that only prints where to get one.
        raise stop("EOS_JAVA_NOT_FOUND", why=f"{path} says {output[:300]!r}")
    return Java(path, int(match.group(1)), output)


def without_environment(said: str) -> str:
    """Return the output of a JVM without the options that it takes from the environment: a proxy's password may be
    among them."""
    return re.sub(r"(?m)^.*Picked up \w*_OPTIONS: .*\n?", "", said)
