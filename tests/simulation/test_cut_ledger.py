"""A ledger that loses its newest records by an unclean election: which losses a start notices, and which nobody can."""

from __future__ import annotations

import random

import pytest

from . import invariants
from .ledger_mistakes import newest_head_believed, own_id_not_asked
from .machine import Run, play
from .plan import Plan
from .schedule import Extras, Schedule, draw
from .test_known_mistakes import Mistake, see
from .world import Fault, Strike

ALWAYS = Extras(cuts=1.0)
SEEDS = 300
TRUNCATED = "EOS_LEDGER_TRUNCATED"


MISTAKES = (
    Mistake(
        "the newest head that is left is believed",
        newest_head_believed,
        (invariants.NOT_DOUBLED, invariants.NEVER_ABORTED),
        extras=ALWAYS,
    ),
    Mistake(
        "the ledger's own id is not asked",
        own_id_not_asked,
        (invariants.NOT_DOUBLED, invariants.NEVER_ABORTED),
        extras=ALWAYS,
    ),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_mistake_is_seen(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mistake put back, what was committed is written again; without, the query stops."""
    see(mistake, monkeypatch)


def _after(records: int, at: str) -> Run:
    """A query whose driver dies in its first micro-batch when the ledger loses so many records, at the latest."""
    faults = Fault(0, Strike.DRIVER_DIES, 0, at), Fault(0, Strike.LEDGER_CUT, records - 1, at)
    return play(Schedule(Plan(rows=(4, 3), tasks=(2,)), faults))


def test_a_decision_that_its_run_has_made_first() -> None:
    """No run decides before it: what is committed by this one tells of a decision, where the head has none."""
    assert _after(2, "commit.ended").query.stops == ["died", TRUNCATED]


def test_all_heads_of_a_query() -> None:
    """As if the ledger topic was lost."""
    assert _after(6, "commit.ended").query.stops == ["died", "EOS_LEDGER_HEAD_LOST"]


def test_a_decision_of_which_nothing_is_committed() -> None:
    """Whether somebody has seen its rows, nobody can tell; and the group has its offsets."""
    assert _after(2, "commit.decided").query.stops == ["died", TRUNCATED]


def test_how_many_losses_nobody_notices() -> None:
    """Those where the ledger was taken again after the decision, and before somebody could ask; they are few."""
    runs = [Run(draw(random.Random(seed), None, ALWAYS)) for seed in range(SEEDS)]
    for one in runs:
        one.play()
    cut = [one for one in runs if one.is_cut]
    excused = [one for one in cut if one.watch.excused]
    stopped = [one for one in cut if TRUNCATED in one.query.stops]
    assert excused and stopped and len(excused) < len(cut) // 20
