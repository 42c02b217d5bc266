"""Processes and their children: killing a driver and its JVM at once, and seeing that nothing of them is left.

``python -m demo.processes PID`` waits until its stdin ends, as it does when the process that holds it open is gone,
even by SIGKILL, and then kills the process with this id and its family.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from spark_eos.tools.devcluster.broker import wait_until_stopped

_GONE_S = 15.0
_POLL_S = 0.02


@dataclass(frozen=True)
class Process:
    """A process id, and when it began: another process may get the id later."""

    pid: int
    begun: str


def children(of: Iterable[int]) -> list[Process]:
    """The direct children of these processes."""
    parents = set(of)
    return [process for process, parent in _table() if parent in parents]


def descendants(of: int) -> list[Process]:
    """Children, their children and so on."""
    found: list[Process] = []
    generation = children([of])
    while generation:
        found += generation
        generation = children(process.pid for process in generation)
    return found


def kill(driver: int) -> None:
    """SIGKILL to a driver and its JVM at once; returns when these and all their Python workers are gone.

    Workers are in process groups of their own and end by themselves when the JVM is gone; one that does not is killed.
    """
    family = descendants(driver)
    jvms = children([driver])
    # A driver's end would let its JVM shut down in good order.
    _send((*(jvm.pid for jvm in jvms), driver), signal.SIGKILL)
    if not _gone(family, _GONE_S):
        _send((process.pid for process in alive(family)), signal.SIGKILL)
        _gone(family, _GONE_S)


@contextlib.contextmanager
def frozen(driver: int) -> Iterator[None]:
    """The driver and its JVM stand still meanwhile, so that what they have written down so far can be looked at."""
    pids = [driver, *(jvm.pid for jvm in children([driver]))]
    _send(pids, signal.SIGSTOP)
    try:
        for pid in pids:
            wait_until_stopped(pid)
        yield
    finally:
        _send(pids, signal.SIGCONT)


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _gone(family: list[Process], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while alive(family):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def alive(family: list[Process]) -> set[Process]:
    """Those of the processes that run."""
    return {process for process, _ in _table()} & set(family)


def _table() -> list[tuple[Process, int]]:
    """Every running process with its parent's id; zombies are left out."""
    return _proc_table() if Path("/proc/self/stat").exists() else _ps_table()


def _proc_table() -> list[tuple[Process, int]]:
    table = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The command's name is in brackets and may hold anything; the state comes after it.
            state, parent, *rest = stat.read_text().rpartition(")")[2].split()
            if state not in "ZX":
                table.append((Process(int(stat.parent.name), rest[17]), int(parent)))
    return table


def _ps_table() -> list[tuple[Process, int]]:
    lines = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat=,lstart="], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    rows = [line.split(maxsplit=3) for line in lines]
    return [(Process(int(pid), begun), int(parent)) for pid, parent, state, begun in rows if state[0] != "Z"]


if __name__ == "__main__":
    sys.stdin.read()
    kill(int(sys.argv[1]))
