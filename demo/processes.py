"""Processes and their children: killing a driver and its JVM at once, and seeing that nothing of them is left.

``python -m demo.processes PID`` waits until its stdin ends, as it does when the process that holds it open is gone,
even by SIGKILL, and then kills the process with this id and its family.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator

import psutil
from psutil import Process as Process

from spark_eos.tools.devcluster.broker import wait_until_stopped

_GONE_S = 15.0
_POLL_S = 0.02


def children(of: Iterable[int]) -> list[Process]:
    """The direct children of these processes."""
    return [child for pid in of for child in _below(pid, recursive=False)]


def descendants(of: int) -> list[Process]:
    """Children, their children and so on."""
    return _below(of, recursive=True)


def _below(pid: int, *, recursive: bool) -> list[Process]:
    """Those that run; zombies are left out."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process for process in Process(pid).children(recursive) if _runs(process)]
    return []


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


def alive(family: Iterable[Process]) -> set[Process]:
    """Those of the processes that run."""
    return set(filter(_runs, family))


def _runs(process: Process) -> bool:
    """Not where it has ended, or another process has its id by now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


if __name__ == "__main__":
    sys.stdin.read()
    kill(int(sys.argv[1]))
