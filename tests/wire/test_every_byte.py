"""Every connection, broken or muted at every byte.

A sample of the bytes by default; with ``SPARK_EOS_WIRE_EVERY_BYTE`` set, all of them.
"""

from __future__ import annotations

import os
from itertools import cycle, product

import pytest

from .faults import Schedule
from .play import broken, play
from .sockets import Line

#: Of each scenario, one of so many bytes; a prime, so that in time all kinds of fields are struck. Those of a query are
#: the requests of the ledger, of offsets, and of whoever looks transactions up.
STRIDES = {"writes": 307, "query": 601, "copies": 601}
EVERY = bool(os.environ.get("SPARK_EOS_WIRE_EVERY_BYTE"))
SEED = 11


@pytest.mark.parametrize("name", STRIDES)
@pytest.mark.parametrize("where", ["cut_up", "cut_down", "mute_up", "mute_down"])
def test_a_connection_may_end_at_any_byte(where: str, name: str) -> None:
    """Whichever byte of whichever connection is the last: rows are there once, and what is told is true. Of a sample,
    each second connection that is cut is reset."""
    lengths = play(Schedule(SEED), name).cluster.travelled()
    direction = 0 if where.endswith("up") else 1
    places = [(n, byte) for n, both in enumerate(lengths) for byte in range(both[direction])]
    assert len(places) > 1000
    resets = (False, True) if where.startswith("cut") else (False,)
    begin = sum(map(ord, where)) % STRIDES[name]
    for (n, byte), reset in product(places, resets) if EVERY else zip(places[begin :: STRIDES[name]], cycle(resets)):
        schedule = Schedule(SEED, lines=((n, Line(**{where: byte}, reset=reset)),))
        assert broken(schedule, name) is None, f"connection {n}, byte {byte}, {reset=}"
