"""Finds the Java that runs the broker and Ivy."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from spark_eos.errors import DevClusterError

MINIMUM_VERSION = 17
_HINT = (
    f"Install Java {MINIMUM_VERSION} or newer, and set JAVA_HOME to its folder or put `java` on the PATH (if "
    "JAVA_HOME is set, the PATH is ignored)."
)


@dataclass(frozen=True)
class Java:
    """`version`: the feature release (17, 21, …). `build`: all that `java -version` says."""

    path: str
    version: int
    build: str


def find_java() -> Java:
    """A Java of version 17 or newer: JAVA_HOME's, or else the PATH's.

    Raises DevClusterError EOS_JAVA_MISSING when there is none, EOS_JAVA_VERSION when it is too old.
    """
    java = _ask(_candidate())
    if java.version < MINIMUM_VERSION:
        raise DevClusterError(
            "EOS_JAVA_VERSION",
            f"{java.path} is Java {java.version}, but Apache Kafka needs {MINIMUM_VERSION} or newer.",
            hint=_HINT,
            java=java.path,
            version=java.version,
        )
    return java


def _candidate() -> str:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if not os.access(java, os.X_OK):
            raise _missing(f"JAVA_HOME is {home}, but there is no program {java}.", java_home=home)
        return str(java)
    found = shutil.which("java")
    if found is None:
        raise _missing("There is no `java` on the PATH, and JAVA_HOME is not set.")
    return found


@functools.lru_cache
def _ask(path: str) -> Java:
    try:
        answer = subprocess.run([path, "-version"], check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _missing(f"{path} could not be run: {error}.", java=path) from error
    said = (answer.stderr + answer.stdout).strip()
    # "17.0.15", "21", "25-ea"; Java 8 and older call themselves "1.8.0_452".
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    if answer.returncode != 0 or match is None:
        # macOS has a `java` that only says where to get one.
        raise _missing(f"{path} is not a usable Java; it says: {said[:300]!r}.", java=path)
    return Java(path, int(match.group(1)), said)


def _missing(message: str, **parameters: str) -> DevClusterError:
    return DevClusterError("EOS_JAVA_MISSING", message, hint=_HINT, **parameters)
