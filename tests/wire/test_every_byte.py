"""Every connection, broken or muted at every byte.

A sample of the bytes by default; with ``SPARK_EOS_WIRE_EVERY_BYTE`` set, all of them.
"""

from __future__ import annotations

import os

import pytest

from .faults import Schedule
from .play import broken, play
from .sockets import Line

#: One of so many bytes; a prime, so that in time all kinds of fields are struck.
STRIDE = 1 if os.environ.get("SPARK_EOS_WIRE_EVERY_BYTE") else 151
SEED = 11


@pytest.mark.parametrize("where", ["cut_up", "cut_down", "mute_up", "mute_down"])
def test_a_connection_may_end_at_any_byte(where: str) -> None:
    """Whichever byte of whichever connection is the last: rows are there once, and what is told is true."""
    lengths = play(Schedule(SEED), "writes").cluster.travelled()
    direction = 0 if where.endswith("up") else 1
    begin = sum(map(ord, where)) % STRIDE
    places = [(n, byte) for n, both in enumerate(lengths) for byte in range(both[direction])]
    assert len(places) > 1000
    for n, byte in places[begin::STRIDE]:
        for reset in (False, True) if where.startswith("cut") else (False,):
            schedule = Schedule(SEED, lines=((n, Line(**{where: byte}, reset=reset)),))
            assert broken(schedule, "writes") is None, f"connection {n}, byte {byte}, {reset=}"
