"""Several queries that run the protocol in one ledger, on the same brokers, some in one application."""

from __future__ import annotations

import pytest

from .neighbours import OTHERS
from .plan import Plan
from .play import play
from .schedule import Schedule

BESIDE = tuple(Plan(rows=(3, 4), tasks=(2,), groups=(f"group of {id}",), id=id) for id in OTHERS)


@pytest.mark.parametrize("topic", ["out", "out-x"])
@pytest.mark.parametrize("together", [False, True])
def test_quiet_queries_write_everything_once(together: bool, topic: str) -> None:
    """Without faults, one start of each is enough, in one application or in several, to one topic or to two."""
    first = Plan(rows=(3, 4, 0, 6), tasks=(2,), keeps=together, topic=topic)
    run = play(Schedule(first, others=BESIDE, together=together))
    assert [query.stops for query in run.queries] == [["done"]] * (1 + len(BESIDE))
    assert len(run.queries[0].applications.all) == 1
