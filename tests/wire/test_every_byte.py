"""Every connection, broken or muted at every byte.

A sample of the bytes by default, by a seed (``SPARK_EOS_SEED``); with ``SPARK_EOS_WIRE_EVERY_BYTE`` set, all of them.
"""

from __future__ import annotations

import os
import random
from functools import cache
from itertools import cycle, product

import pytest

from .faults import Schedule
from .play import broken, play
from .sockets import Line

#: Of each scenario, one of so many bytes; a prime, so that in time all kinds of fields are struck. Those of a query are
#: the requests of the ledger, of offsets, and of whoever looks transactions up.
STRIDES = {"writes": 307, "query": 1201, "copies": 1201}
EVERY = bool(os.environ.get("SPARK_EOS_WIRE_EVERY_BYTE"))
SEED = 11


@cache
def lengths(name: str) -> list[tuple[int, int]]:
    """Bytes that travel up and down each connection, if none is broken."""
    return play(Schedule(SEED), name).cluster.travelled()


@pytest.mark.parametrize("name", STRIDES)
@pytest.mark.parametrize("where", ["cut_up", "cut_down", "mute_up", "mute_down"])
def test_a_connection_may_end_at_any_byte(where: str, name: str) -> None:
    """Whichever byte of whichever connection is the last: rows are there once, and what is told is true. Of a sample,
    each second connection that is cut is reset."""
    direction = 0 if where.endswith("up") else 1
    places = [(n, byte) for n, both in enumerate(lengths(name)) for byte in range(both[direction])]
    assert len(places) > 1000
    resets = (False, True) if where.startswith("cut") else (False,)
    begin = random.Random(f"{os.environ.get('SPARK_EOS_SEED')} {where} {name}").randrange(STRIDES[name])
    for (n, byte), reset in product(places, resets) if EVERY else zip(places[begin :: STRIDES[name]], cycle(resets)):
        schedule = Schedule(SEED, lines=((n, Line(**{where: byte}, reset=reset)),))
        assert broken(schedule, name) is None, f"connection {n}, byte {byte}, {reset=}"
