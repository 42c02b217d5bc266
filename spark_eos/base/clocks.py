"""The time that has passed, by several clocks: one alone may miss some of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """A moment by several clocks of one machine, in seconds. Another process of the machine can use it."""

    seen: tuple[float, ...]

    @classmethod
    def now(cls, *clocks: Callable[[], float]) -> Moment:
        return cls(tuple(clock() for clock in clocks))

    def ago_ms(self, *clocks: Callable[[], float]) -> int:
        """Return milliseconds since then, by the one of the same clocks that has advanced most."""
        return int(max(0.0, *(clock() - then for clock, then in zip(clocks, self.seen, strict=True))) * 1000)


class Elapsed:
    """Milliseconds since it was made. Between two calls, the clock that has advanced most counts; clocks are in
    seconds.

    A monotonic clock may stop while a virtual machine is paused, and the time of day may be set back.
    """

    def __init__(self, *clocks: Callable[[], float]) -> None:
        self._clocks = clocks
        self._seen = [clock() for clock in clocks]
        self._passed_s = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> int:
        with self._lock:
            seen = [clock() for clock in self._clocks]
            self._passed_s += max(0.0, *(now - before for now, before in zip(seen, self._seen, strict=True)))
            self._seen = seen
            return int(self._passed_s * 1000)
