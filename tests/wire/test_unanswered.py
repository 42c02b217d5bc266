"""What is not answered, or not whole, is asked again: nothing is taken for done that nobody has said is done."""

from __future__ import annotations

import pytest

from .codec import NAMES
from .faults import Fault, Kind, Schedule
from .play import PLAYS, staged

API = {name: api for api, name in NAMES.items()}
#: Whose answer may be silent about something that was asked for, and which may be sent on a connection that a firewall
#: has forgotten.
INCOMPLETE = ("Produce", "Fetch", "ListOffsets", "DescribeProducers", "TxnOffsetCommit")
SILENT = ("InitProducerId", "DescribeTransactions", "ListTransactions", "DescribeProducers", "ListOffsets", "EndTxn")
#: Of these, one whose query commits the offsets of a group.
SEED = 0


@pytest.mark.parametrize(
    ("kind", "name", "level"),
    [
        *((Kind.INCOMPLETE, name, 2) for name in INCOMPLETE),
        (Kind.INCOMPLETE, "AddPartitionsToTxn", 1),
        *((Kind.SILENT, name, 2) for name in SILENT),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_one_answer_that_does_not_come_whole_stops_no_query(kind: Kind, name: str, level: int) -> None:
    """Whichever of the first requests of a kind it is to; and the judge finds all as it was told."""
    for nth in range(5):
        with staged(Schedule(SEED, (Fault(API[name], nth, kind),), level=level)) as stage:
            PLAYS["query"](stage)
            assert stage.cluster.asked[API["TxnOffsetCommit"]] > 0
            assert [stop.condition for stop in stage.stops] == [], (nth, stage.stops)
