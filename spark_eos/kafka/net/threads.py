"""What opens connections does so in threads where there are several: each takes as long as its host, and the handshake
with TLS and SASL blocks."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def begin_each(do: Callable[[K], T], each: Collection[K]) -> Callable[[], list[T]]:
    """Begin to do this with each at once, in a thread of its own. Returns what waits for the results, in their order,
    and raises what was raised."""
    if not each:
        return list
    pool = ThreadPoolExecutor(len(each), "eos connects")
    begun = [pool.submit(do, one) for one in each]
    pool.shutdown(wait=False)
    return lambda: [one.result() for one in begun]
