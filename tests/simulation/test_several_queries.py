"""Several queries that run the protocol in one ledger, on the same brokers, some in one application."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from . import ledger, mistakes
from .invariants import NEIGHBOURS, NOT_LOST
from .neighbours import OTHERS
from .plan import QUERY, Plan
from .play import play
from .processes import Process
from .schedule import Extras, Schedule, draw
from .test_known_mistakes import Mistake, see

ALWAYS = Extras(others=1.0)
BESIDE = tuple(Plan(rows=(3, 4), tasks=(2,), groups=(f"group of {id}",), id=id) for id in OTHERS)


def _by_prefix(patch: pytest.MonkeyPatch) -> None:
    """What begins as the query's transactional ids do, and ends as those of a task, is taken for its own."""
    tail = re.compile(r".*-(\d+)-\d+-([01])(?:-\d+)?(?:-r\d+)?")

    def sloppy(prefix: str, query: str, name: str, *, before: Any = None, generation_and_slot: Any = None) -> bool:
        match = tail.fullmatch(name)
        generation, slot = (int(match[1]), int(match[2])) if match is not None else (0, 0)
        return (
            match is not None
            and generation_and_slot in (None, (generation, slot))
            and (before is None or generation < before)
        )

    patch.setattr(ledger, "is_task_name", sloppy)


def _kept_without_the_query(patch: pytest.MonkeyPatch) -> None:
    """A process has one reader of the ledger, whichever query it works for."""
    patch.setattr(Process, "key_of", lambda self, known: (QUERY, known[1], None))


MISTAKES = (
    Mistake(_by_prefix, (NEIGHBOURS,), extras=ALWAYS),
    Mistake(_kept_without_the_query, (NEIGHBOURS,), extras=ALWAYS),
    Mistake(mistakes.unverified_starts_in_memory_alone, (NOT_LOST,), extras=Extras(others=1.0, aborts=1.0), seed=138),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_the_mistake_is_seen(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mistake put back, one query is at what is another's; without, none is."""
    see(mistake, monkeypatch)


@pytest.mark.parametrize("topic", ["out", "out-x"])
@pytest.mark.parametrize("together", [False, True])
def test_quiet_queries_write_everything_once(together: bool, topic: str) -> None:
    """Without faults, one start of each is enough, in one application or in several, to one topic or to two."""
    first = Plan(rows=(3, 4, 0, 6), tasks=(2,), keeps=together, topic=topic)
    run = play(Schedule(first, others=BESIDE, together=together))
    assert [query.stops for query in run.queries] == [["done"]] * (1 + len(BESIDE))
    assert len(run.queries[0].applications.all) == 1


def test_some_schedules_have_several() -> None:
    """Enough that each run of the tests has them, few enough that they cost little."""
    several = [seed for seed in range(1_000) if draw(random.Random(seed)).others]
    assert 20 < len(several) < 100
