"""One connection that falls silent, as behind a firewall that has forgotten it: the query goes on by another one."""

from __future__ import annotations

import pytest

from .codec import NAMES
from .faults import Fault, Kind, Schedule
from .play import PLAYS, staged

API = {name: api for api, name in NAMES.items()}
ASKED = ("InitProducerId", "DescribeTransactions", "ListTransactions", "DescribeProducers", "ListOffsets", "EndTxn")


@pytest.mark.parametrize("name", ASKED)
def test_one_silent_connection_stops_no_query(name: str) -> None:
    """Whichever of the first requests of a kind is never answered: it is asked again in time, and nothing stops."""
    for nth in range(9):
        with staged(Schedule(5, (Fault(API[name], nth, Kind.SILENT),))) as stage:
            PLAYS["query"](stage)
            assert [stop.condition for stop in stage.stops] == [], (nth, stage.stops)
