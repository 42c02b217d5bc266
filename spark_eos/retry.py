"""Retries with a time limit."""

from __future__ import annotations

from collections.abc import Iterator

from spark_eos import system

FIRST_WAIT_S = 0.002
LONGEST_WAIT_S = 0.5


def retrying(seconds: float) -> Iterator[None]:
    """Yield at once, then after pauses that grow from 2 ms to half a second, until ``seconds`` have passed."""
    deadline = system.monotonic() + seconds
    wait = FIRST_WAIT_S
    yield
    while system.monotonic() + wait < deadline:
        system.sleep(wait)
        yield
        wait = min(wait * 1.5, LONGEST_WAIT_S)
