"""How much processor time Spark's processes use while they wait, or meet a fault: a query must not spin.

Spark's processes are whatever runs below the tests' process but the brokers. Their names do not tell: workers are forks
of a server or of a daemon, by whose name they go.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from demo.processes import Process, descendants

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: In /proc/…/stat behind the name: user and system time of its own.
_TIMES = slice(11, 13)
_LOOK_S = 0.5
#: What the commands of brokers and of their watchdogs have.
_BROKERS = (b"\0kafka.Kafka\0", b"/watchdog.py\0")
#: What a query may use from a fault to its end: so many seconds for what it does, and a share of each second besides.
#: A process that spins uses all of it.
WORK_S, CORES = 20.0, 0.5


@contextlib.contextmanager
def worked_for(most_s: float) -> Iterator[None]:
    """The block uses no more processor time than that in this process. How much time passes depends on the machine's
    other work."""
    began = time.process_time()
    yield
    used = time.process_time() - began
    assert used <= most_s, f"{used:.1f} s of processor time"


class Load:
    """Spark's processes below this one, from now on: its JVM, its Python workers, and the program of a query."""

    def __init__(self) -> None:
        self._began = self._looked = time.monotonic()
        self._before = _used_s()
        self._last = dict(self._before)

    def cores(self) -> float:
        """Processor seconds used for each second that has passed."""
        return self.used_s() / (time.monotonic() - self._began)

    def used_s(self) -> float:
        """Processor seconds used; of a process that has ended, those that it had used when it was last looked at."""
        self._last |= _used_s()
        return sum(used - self._before.get(process, 0.0) for process, used in self._last.items())

    def look(self) -> bool:
        """Do so now and then, in a loop that waits; True."""
        if time.monotonic() - self._looked >= _LOOK_S:
            self.used_s()
            self._looked = time.monotonic()
        return True

    def check(self, work_s: float = WORK_S, cores: float = CORES) -> float:
        """As `used_s`; it fails where that is more than a query needs that works and waits."""
        used, seconds = self.used_s(), time.monotonic() - self._began
        assert used <= work_s + cores * seconds, f"{used:.1f} s of processor time in {seconds:.1f} s: something spins"
        return used


def _used_s() -> dict[Process, float]:
    found = {}
    for process in descendants(os.getpid()):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            folder = Path(f"/proc/{process.pid}")
            command = (folder / "cmdline").read_bytes()
            # Of a process that has ended, and that nobody has waited for yet, nothing tells what it was.
            if command and not any(part in command for part in _BROKERS):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                found[process] = sum(map(int, fields[_TIMES])) / _TICKS_PER_S
    return found
