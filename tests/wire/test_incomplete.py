"""An answer that leaves out what was asked for is none: nothing is taken for done that nobody has said is done."""

from __future__ import annotations

import pytest

from .codec import NAMES
from .faults import Fault, Kind, Schedule
from .play import PLAYS, staged

API = {name: api for api, name in NAMES.items()}
ASKED = ("Produce", "Fetch", "ListOffsets", "DescribeProducers", "TxnOffsetCommit")
#: Of these, one whose query commits the offsets of a group.
SEED = 0


@pytest.mark.parametrize(("name", "level"), [*((name, 2) for name in ASKED), ("AddPartitionsToTxn", 1)])
def test_an_incomplete_answer_stops_no_query(name: str, level: int) -> None:
    """Whichever of the first requests of a kind it is: it is asked again, and the judge finds all as it was told."""
    for nth in range(4):
        with staged(Schedule(SEED, (Fault(API[name], nth, Kind.INCOMPLETE),), level=level)) as stage:
            PLAYS["query"](stage)
            assert stage.cluster.asked[API["TxnOffsetCommit"]] > 0
            assert [stop.condition for stop in stage.stops] == [], (nth, stage.stops)
