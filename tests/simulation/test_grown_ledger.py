"""A first head, in a ledger that is given partitions while a leader of it answers as of a while ago."""

from __future__ import annotations

import pytest

from spark_eos.ledger.reader import LedgerReader

from .invariants import OWN_GENERATION
from .plan import Plan
from .play import play
from .schedule import Schedule
from .world import Fault, Strike, Violation

#: The second start of the query leads to another partition than the first one did, and sees neither that one's head nor
#: a transaction of its tasks, which have not begun yet.
SCHEDULE = Schedule(
    plan=Plan(rows=(4,), tasks=(2, 2, 2), groups=("group", "other"), keeps=False),
    faults=(
        Fault(0, Strike.LEADER_STALE, 15_001, at="open.published"),
        Fault(1, Strike.STALL, 2_000, at="open.published"),
        Fault(9, Strike.LEDGER_GROWS, 15),
        Fault(14, Strike.SECOND_DRIVER, 301),
        Fault(45, Strike.APPEND_FAILS, 3),
    ),
    quantum=5,
)


def test_a_first_head_is_looked_for_by_writing_to_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who acknowledges a record knows what is before it. By reading alone, two runs would be the first."""
    play(SCHEDULE)
    monkeypatch.setattr(LedgerReader, "elsewhere", lambda self: [])
    with pytest.raises(Violation, match=OWN_GENERATION):
        play(SCHEDULE)
