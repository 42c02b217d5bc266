"""A mirror is taken over while it runs: the taker begins exactly where the old query has ended, which decides nothing
after that, and restarts for nothing."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pytest

from spark_eos.errors import EosError
from spark_eos.protocol import commands
from spark_eos.protocol.commands import Standing, hand_over, standing
from spark_eos.protocol.head import Successor

from . import driver
from .ledger import PREFIX, ports
from .play import Run
from .schedule import Extras, draw
from .test_known_mistakes import first_broken
from .world import Actor, Fault, Strike, Violation

SCHEDULES = 150
AT = ("", "", "commit.entered", "commit.taken", "commit.verified", "commit.decided", "commit.ended", "open.taken")
DECIDES_NOTHING = "who was taken over decides nothing"
WHERE_IT_ENDED = "the taker begins where the other one has ended"
#: How long a taker reads the map: the query may decide meanwhile.
READS_MS = 500


class TakenOver:
    """A schedule in which two takers come, each at a moment that chance chooses."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        schedule = draw(chance, extras=Extras())
        strikes = [Fault(chance.randrange(120), Strike.OPERATOR_ABORTS, 0, chance.choice(AT)) for _ in range(2)]
        self.run = Run(replace(schedule, faults=(*schedule.faults, *strikes)))
        self.took: list[Standing] = []
        self.run.world.handlers[Strike.OPERATOR_ABORTS] = self._strike

    def _strike(self, actor: Actor, fault: Fault) -> bool:
        self.run.world.spawn(f"operator {self.run.world.step}", "operator", self._take)
        return True

    def _take(self) -> None:
        with contextlib.suppress(EosError):
            own = ports(self.run.world, self.run.cluster)
            for _ in own.retrying():
                seen = standing(own)
                self.run.world.sleep(READS_MS)
                if hand_over(own, Successor(f"taker {self.run.world.step}", "/new"), seen, PREFIX):
                    self.took.append(seen)
                    return

    def play(self) -> None:
        """Raises Violation."""
        self.run.query.start()
        self.run.world.run()
        if self.run.watch.ledger_lost or not self.took:
            return
        published = self.run.watch.heads
        first = next(n for n, head in enumerate(published) if head.marks.successor is not None)
        for before, after in zip(published[first:], published[first + 1 :], strict=False):
            if not commands.is_same(after.decision, before.decision) or after.marks != before.marks:
                raise Violation(DECIDES_NOTHING, f"{before.decision}, then {after.decision}")
        for seen in self.took:
            if not commands.is_same(seen.decision, published[first].decision):
                raise Violation(WHERE_IT_ENDED, f"{published[first].decision}, and it has seen {seen.decision}")


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts the query again reads the error, and does not."""
    monkeypatch.setattr(driver, "_FINAL", (*driver._FINAL, "EOS_QUERY_RETIRED"))


def play(seed: int) -> TakenOver:
    taken = TakenOver(seed)
    taken.play()
    return taken


def test_the_taker_begins_where_the_other_one_has_ended():
    """Whatever strikes the two; and the query is taken over in the middle of its work often enough."""
    found = [play(seed) for seed in range(SCHEDULES)]
    amid = [taken for taken in found if taken.took and "EOS_QUERY_RETIRED" in taken.run.query.stops]
    assert len(amid) > SCHEDULES // 5


def _unmarked(patch: pytest.MonkeyPatch) -> None:
    """A start that does not look at the mark: the query goes on as after an abort."""
    patch.setattr("spark_eos.protocol.status.marked", lambda head, topic: None)


def _unasked(patch: pytest.MonkeyPatch) -> None:
    """The query is retired whatever it has decided since somebody has looked."""
    patch.setattr("tests.simulation.test_handing_over.hand_over", _whatever_was_seen)


def _whatever_was_seen(own, successor, seen, prefix):
    return commands.hand_over(own, successor, standing(own), prefix)


@pytest.mark.parametrize(("mistake", "breaks"), [(_unmarked, DECIDES_NOTHING), (_unasked, WHERE_IT_ENDED)])
def test_known_mistakes_are_seen(mistake, breaks):
    """Each is put back, and breaks what it would cost."""
    assert first_broken(mistake, play).invariant == breaks
