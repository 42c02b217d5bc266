"""The clock, and what happens by it: one thread, no sleep, the same each time.

What our code calls on `spark_eos.base.system` ends here. A wait runs the events that come before its end, so a minute
of silence costs no time. Each look at the clock takes a microsecond, so that a loop that only looks at it ends."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from spark_eos.base import system
from spark_eos.kafka.net import threads
from spark_eos.kafka.requests import end_txn
from spark_eos.ledger import coordinator
from spark_eos.sink import attempt

if TYPE_CHECKING:
    from .sockets import Host

_LOOK_S = 1e-6
_MOST_LOOKS = 1_000_000
START_S = 1_700_000_000.0


class Violation(AssertionError):
    """What must hold, did not. No code of the product catches it."""


class AtOnce:
    """For `ThreadPoolExecutor`: here all that is to be done at once is done one after the other."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, do: Callable[..., Any], *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(do(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True) -> None: ...


class World:
    """``limit_s``: for longer, nothing may go on. ``hosts``: who listens, by (host, port).
    ``names``: of hosts, families and addresses, where a name is not its own one address."""

    def __init__(self, seed: int, limit_s: float) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.limit_s = limit_s
        self.hosts: dict[tuple[str, int], Host] = {}
        self.names: dict[str, list[tuple[int, tuple[str, int]]]] = {}
        self.sockets: dict[int, Any] = {}
        self.trace: list[str] = []
        self._looks = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._next = 0

    # What our code sees

    def monotonic(self) -> float:
        self._looks += 1
        self.now += _LOOK_S
        self._check()
        return self.now + 1000.0

    def time_of_day(self) -> float:
        return START_S + self.now

    def sleep(self, seconds: float) -> None:
        self.wait(lambda: False, max(0.0, seconds))

    # What the brokers see

    def at(self, seconds: float, do: Callable[..., None], *arguments: Any) -> None:
        """Do this so many seconds from now."""
        self._next += 1
        heapq.heappush(self._events, (self.now + max(0.0, seconds), self._next, partial(do, *arguments)))

    def wait(self, ready: Callable[[], bool], seconds: float | None) -> bool:
        """Let things happen until it is ready, or the time is up. Returns whether it is ready."""
        until = float("inf") if seconds is None else self.now + seconds
        while not ready():
            if self._events and self._events[0][0] <= until:
                self._step()
            elif seconds is None:
                raise Violation("something waits for what will never happen")
            else:
                self.now = max(self.now, until)
                self._check()
                return ready()
        return True

    def settle(self) -> None:
        """Let happen what is due now."""
        while self._events and self._events[0][0] <= self.now:
            self._step()

    def next_number(self) -> int:
        self._next += 1
        return self._next

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now:10.4f} {text}")

    def _step(self) -> None:
        at, _, do = heapq.heappop(self._events)
        self.now = max(self.now, at)
        self._check()
        do()

    def _check(self) -> None:
        if self.now > self.limit_s:
            raise Violation(f"after {self.limit_s:.0f} s it still goes on")
        if self._looks > _MOST_LOOKS:
            raise Violation("it spins")

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Our code runs in this world, within the block."""
        from .sockets import Poll, Socket, addresses

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(system, "monotonic", self.monotonic)
            patch.setattr(system, "steady", self.monotonic)
            patch.setattr(system, "time_of_day", self.time_of_day)
            patch.setattr(system, "sleep", self.sleep)
            patch.setattr(system, "poll", partial(Poll, self))
            patch.setattr(system, "socket", partial(Socket, self))
            patch.setattr(system, "getaddrinfo", partial(addresses, self))
            patch.setattr(attempt, "time", SimpleNamespace(time=self.time_of_day, monotonic=self.monotonic))
            for module in (coordinator, end_txn, threads):
                patch.setattr(module, "ThreadPoolExecutor", AtOnce)
            yield
