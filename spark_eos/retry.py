"""Retries with a time limit."""

from __future__ import annotations

from collections.abc import Iterator

from spark_eos import system

FIRST_WAIT_S = 0.002
LONGEST_WAIT_S = 0.5


def retrying(timeout_s: float) -> Iterator[None]:
    """Yield at once, then after pauses that grow from 2 ms to half a second, until ``timeout_s`` seconds are over."""
    deadline = system.monotonic() + timeout_s
    wait_s = FIRST_WAIT_S
    yield
    while system.monotonic() + wait_s < deadline:
        system.sleep(wait_s)
        yield
        wait_s = min(wait_s * 1.5, LONGEST_WAIT_S)
