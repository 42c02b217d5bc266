"""Waiting for what is to come true, never for a time that is hoped to be long enough."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

#: For whatever must happen. Only a broken test waits so long: a machine that is slower than others, or busy, must pass.
TIMEOUT = 240.0
#: For a whole program, such as a job with its JVM, from its start to its end. Less than pytest's faulthandler_timeout.
PROGRAM_S = 600.0
_LOOK_S = 0.01


def wait_for(condition: Callable[[], T | None], what: str | Callable[[], str], timeout: float = TIMEOUT) -> T:
    """The condition's first true value; after ``timeout`` seconds an AssertionError that says ``what`` did not come.

    ``what`` may be a call, for what is known only then, such as a log.
    """
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {what if isinstance(what, str) else what()}"
        time.sleep(_LOOK_S)
    return found


def is_gone(pid: int) -> bool:
    """Whether the process is gone; a zombie that nobody has waited for yet is gone, too."""
    return not (state := state_of(pid)) or state.startswith("Z")


def command_of(pid: int) -> bytes:
    """The process's command line, of Linux, its parts ended by NUL; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def state_of(pid: int) -> str:
    """The process's state as ``ps`` has it, such as T for one that is stopped; empty if there is none."""
    command = ["ps", "-o", "stat=", "-p", str(pid)]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()
