"""A ledger that is lost, or emptied from the front, and begun anew by ``ledger.begin``, which stays set after that.

It counts for its micro-batch only: when the ledger is lost once more, at a later one, the query has to stop again.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from spark_eos.protocol.open import open_run

from . import invariants
from . import task as tasks
from .plan import Plan
from .play import Run, play
from .schedule import Extras, Schedule, draw
from .test_known_mistakes import Mistake, see
from .world import Fault, Strike

ALWAYS = Extras(begins=1.0)
SEEDS = 300
MISSING = "EOS_LEDGER_HEAD_MISSING"


def _whichever_micro_batch(patch: pytest.MonkeyPatch) -> None:
    """``ledger.begin`` is a switch."""

    def opened(own: Any, run: str, batch: int, *, begin_at: int | None, **more: Any) -> Any:
        return open_run(own, run, batch, begin_at=None if begin_at is None else batch, **more)

    patch.setattr(tasks, "open_run", opened)


MISTAKES = (
    Mistake(
        "ledger.begin counts for any micro-batch", _whichever_micro_batch, (invariants.NOT_DOUBLED,), extras=ALWAYS
    ),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_mistake_is_seen(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mistake put back, what was decided in the ledger that was lost last is written again."""
    see(mistake, monkeypatch)


@pytest.mark.parametrize("strike", [Strike.LEDGER_LOST, Strike.LEDGER_TRIMMED])
@pytest.mark.parametrize("sets", [False, True])
def test_a_ledger_that_is_lost_between_micro_batches(strike: Strike, sets: bool) -> None:
    """Who plans the next one stops, and names it; it is set, and the query goes on."""
    assert _stops(Fault(0, strike, 3, "commit log"), sets=sets) == [MISSING, *(["done"] if sets else [])]


@pytest.mark.parametrize("strike", [Strike.LEDGER_LOST, Strike.LEDGER_TRIMMED])
def test_a_ledger_that_is_lost_with_a_decision(strike: Strike) -> None:
    """The micro-batch that the error names was planned by an earlier start: nobody sets that."""
    assert _stops(Fault(0, strike, 3, "commit.decided", Fault(0, Strike.DRIVER_DIES))) == ["died", MISSING]


def _stops(fault: Fault, *, sets: bool = True) -> list[str]:
    """How a query ends, each time, that is struck in its second micro-batch."""
    return _run(fault, sets=sets).query.stops


def _run(fault: Fault, *, sets: bool = True) -> Run:
    plan = Plan(rows=(4, 3, 4), tasks=(2,), sets_begin=sets)
    return play(Schedule(plan, (Fault(0, Strike.STALL, 1, "commit log", fault),)))


def test_many_go_on_and_some_lose_it_once_more() -> None:
    """What the other schedules of the tests have, too."""
    runs = [Run(draw(random.Random(seed), None, ALWAYS)) for seed in range(SEEDS)]
    for one in runs:
        one.play()
    begun = [one for one in runs if one.query.begin_at is not None]
    again = [one for one in begun if one.query.stops.count(MISSING) > 1]
    excused = [one for one in begun if one.watch.excused]
    assert len(begun) > SEEDS // 10 and again and len(excused) < len(begun) // 3


def test_left_set_it_hides_a_loss_at_its_own_micro_batch() -> None:
    """Known, and excused: the same loss, decided there since, is begun anew once more."""
    again = Fault(0, Strike.LEDGER_TRIMMED, 3, "commit.ended", Fault(0, Strike.DRIVER_DIES))
    run = _run(Fault(0, Strike.LEDGER_TRIMMED, 3, "commit log", Fault(0, Strike.STALL, 1, "open.taken", again)))
    assert run.watch.excused and run.query.stops == [MISSING, "died", "done"]
