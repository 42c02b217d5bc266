"""Results that a process keeps for a while, and messages that it logs once.

`ttl_cache` is for answers that change, such as a topic's configuration; `process_cache` for objects that a forked
child must not share, such as connections. Functions whose result never changes use `functools.cache`.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, ParamSpec, TypeVar

from spark_eos.base import system
from spark_eos.base.log import logger

P = ParamSpec("P")
R = TypeVar("R")


class _Cached(Generic[P, R]):
    """A function with a cache. Arguments have to be hashable; an exception is not kept."""

    def __init__(self, function: Callable[P, R], ttl_s: float, maxsize: int) -> None:
        functools.update_wrapper(self, function)
        self._function, self._ttl_s, self._maxsize = function, ttl_s, maxsize
        self._entries: OrderedDict[Hashable, tuple[R, float]] = OrderedDict()
        self._unlock()
        os.register_at_fork(after_in_child=self._unlock)  # another thread may have held the lock during the fork

    def _unlock(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        # By the process's id, too: a forked child uses no result of its parent. It does not drop them either, as some
        # objects, such as pyarrow's file systems, must not be destroyed in a child.
        key: Hashable = os.getpid(), args, tuple(sorted(kwargs.items()))
        called_at = system.monotonic()
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and called_at < entry[1]:
                self._entries.move_to_end(key)
                return entry[0]
        result = self._function(*args, **kwargs)
        with self._lock:
            self._entries[key] = result, called_at + self._ttl_s
            self._entries.move_to_end(key)
            if len(self._entries) > self._maxsize:
                self._entries.popitem(last=False)
        return result

    def cache_clear(self) -> None:
        """Forget every result."""
        with self._lock:
            self._entries.clear()


def ttl_cache(ttl_s: float, maxsize: int) -> Callable[[Callable[P, R]], _Cached[P, R]]:
    """Return a decorator that keeps a function's results for ``ttl_s`` seconds, counted from the call.

    At most ``maxsize`` results are kept, the most recently used ones. Threads that miss the cache together all call the
    function; a forked child does not use its parent's results. Tests call the function's ``cache_clear()``.
    """
    return lambda function: _Cached(function, ttl_s, maxsize)


def process_cache(maxsize: int) -> Callable[[Callable[P, R]], _Cached[P, R]]:
    """Return a `ttl_cache` whose results are kept as long as the process lives."""
    return ttl_cache(math.inf, maxsize)


@process_cache(maxsize=256)
def log_once(level: int, message: str, *values: object) -> None:
    """Log a message with its values, unless this process has logged just these before."""
    logger.log(level, message, *values)
