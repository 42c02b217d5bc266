"""What processes cost while something runs: processor time and memory, looked up four times a second."""

from __future__ import annotations

import contextlib
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import psutil

#: The groups: a client, such as Spark's JVM in local mode with its Python processes, and its broker.
CLIENT, BROKER = "client", "broker"
_PERIOD_S = 0.25
#: Of the client's processor time: a Python process that used no more did nothing.
_IDLE_SHARE = 0.01
_MIB = 1 << 20


@dataclass(frozen=True)
class ProcessUsage:
    """A process. ``cpu``: seconds, user and system, of it and of its children that have ended; ``resident``: bytes."""

    pid: int
    name: str
    cpu: float
    resident: int


@dataclass(frozen=True)
class UsageSample:
    """One look, at a time in seconds since the epoch. ``cpu``: seconds by group. ``workers``: the client's Python."""

    at: float
    cpu: Mapping[str, float]
    workers: Mapping[int, ProcessUsage]


@dataclass(frozen=True)
class Cost:
    """Of a stretch of time: seconds of processor time by group, and the highest memory of Python processes in MiB.

    That of the largest, and of all at once, without those that did nothing; what forked processes share counts in each.
    """

    cpu: Mapping[str, float]
    largest_worker_mib: float
    workers_mib: float


class Meter:
    """A context manager that looks at groups of processes: ``{group: process ids}``, descendants included. None of a
    group's processes descends from another one of them. ``own``: the group for which this process's time counts, where
    it does some of the work."""

    def __init__(self, roots: Mapping[str, Sequence[int]], *, own: str | None = None) -> None:
        self._roots, self._own = dict(roots), own
        self._samples: list[UsageSample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="meter", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def between(self, begin: float, end: float) -> Cost:
        """The cost from one time to another, both in seconds since the epoch and inside of what was watched.

        Between two looks processor time is taken to grow evenly.
        """
        inside = [sample for sample in self._samples if begin <= sample.at <= end] or self._samples[-1:]
        busy = _busy(inside)
        resident = [[p.resident for p in sample.workers.values() if p.pid in busy] for sample in inside]
        return Cost(
            {group: self._cpu(group, end) - self._cpu(group, begin) for group in self._roots},
            max(max(sizes, default=0) for sizes in resident) / _MIB,
            max(map(sum, resident)) / _MIB,
        )

    def _cpu(self, group: str, at: float) -> float:
        times = [sample.at for sample in self._samples]
        i = min(max(1, bisect_left(times, at)), len(times) - 1)
        before, after = self._samples[i - 1], self._samples[i]
        share = (at - before.at) / max(after.at - before.at, 1e-9)
        return before.cpu[group] + min(1.0, max(0.0, share)) * (after.cpu[group] - before.cpu[group])

    def _watch(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            self._look()

    def _look(self) -> None:
        families = {group: list(_family(roots)) for group, roots in self._roots.items()}
        workers = {p.pid: p for p in families.get(CLIENT, []) if p.name.startswith("python")}
        cpu = {group: sum(process.cpu for process in members) for group, members in families.items()}
        if self._own is not None:
            cpu[self._own] += time.process_time()
        self._samples.append(UsageSample(time.time(), cpu, workers))


def _busy(samples: Sequence[UsageSample]) -> set[int]:
    """The Python processes that worked: not those that an earlier query has left, and that wait to be used again."""
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for sample in samples:
        for pid, process in sample.workers.items():
            first.setdefault(pid, process.cpu)
            last[pid] = process.cpu
    least = _IDLE_SHARE * (samples[-1].cpu[CLIENT] - samples[0].cpu[CLIENT])
    return {pid for pid in last if last[pid] - first[pid] > least}


def _family(roots: Sequence[int]) -> Iterator[ProcessUsage]:
    """These processes, by their ids, and their descendants, as far as they run."""
    for root in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(root)
            for each in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess), each.oneshot():
                    yield ProcessUsage(each.pid, each.name(), sum(each.cpu_times()[:4]), each.memory_info().rss)
