"""Threads for calls that open several connections: each takes as long as its host, and the handshake with TLS and SASL
blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def begin_each(do: Callable[[K], T], each: Collection[K]) -> Callable[[], list[T]]:
    """Begin ``do`` for each item at once, in a thread of its own. Returns a function that waits for the results and
    returns them in order, or raises an error of ``do``."""
    if not each:
        return list
    pool = ThreadPoolExecutor(len(each), "eos connects")
    begun = [pool.submit(do, one) for one in each]
    pool.shutdown(wait=False)
    return lambda: [one.result() for one in begun]
