"""A query is retired while it runs, by `spark-eos replay`: from then on it decides nothing, and leaves nothing open."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pytest

from spark_eos.errors import EosError
from spark_eos.protocol import commands
from spark_eos.protocol.commands import retire, settle_decided
from spark_eos.protocol.head import Head, Successor

from . import driver
from .ledger import QUERY, ports
from .plan import TOPIC
from .play import Run
from .schedule import Extras, draw
from .test_known_mistakes import first_broken
from .world import Actor, Fault, Strike, Violation

HEIR = Successor("the next", "/next")
SCHEDULES = 300
AT = ("", "", "commit.entered", "commit.taken", "commit.verified", "commit.decided", "commit.ended", "open.taken")
DECIDES_NOTHING = "a retired query decides nothing"
ALL_VISIBLE = "what a retired query has decided is visible, and nothing is open"
LATER_MS = 600_000


class Retired:
    """A schedule in which somebody retires the query, at a moment that chance chooses, and again when all is quiet."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        schedule = draw(chance, extras=Extras())
        strike = Fault(chance.randrange(120), Strike.OPERATOR_ABORTS, 0, chance.choice(AT))
        self.run = Run(replace(schedule, faults=(*schedule.faults, strike)))
        self.heads: list[Head] = []
        self.run.world.handlers[Strike.OPERATOR_ABORTS] = self._strike

    def _strike(self, actor: Actor, fault: Fault) -> bool:
        self.run.world.spawn(f"operator {self.run.world.step}", "operator", self._retire)
        return True

    def _retire(self) -> None:
        with contextlib.suppress(EosError):
            self.heads.append(retire(ports(self.run.world, self.run.cluster), QUERY, HEIR).head)

    def play(self) -> None:
        """Raises Violation."""
        self.run.query.start()
        self.run.world.run()
        if self.run.watch.ledger_lost or not self.heads:
            return  # nobody knows any more that it was retired; or it never was
        self._conclude()
        published = self.run.watch.heads
        first = next(n for n, head in enumerate(published) if head.marks.successor is not None)
        for before, after in zip(published[first:], published[first + 1 :], strict=False):
            if _what(after) != _what(before) or after.marks != before.marks:
                raise Violation(DECIDES_NOTHING, f"{_what(before)}, then {_what(after)}")
        decision = published[first].decision
        end = 0 if decision is None else self.run.query.offsets[decision.batch][1]
        if set(range(end)) != self.run.watch.seen.keys() and not self._rows_taken():
            raise Violation(ALL_VISIBLE, f"rows up to {end}, seen {sorted(self.run.watch.seen)}")

    def _rows_taken(self) -> bool:
        """Retention or an operator has taken rows in this schedule; then the last decision may be unclear for good."""
        return any(log.begin for log in self.run.cluster.logs.values())

    def _conclude(self) -> None:
        """When all is quiet, the command is repeated: it ends what its first try could not."""

        def again() -> None:
            self.run.world.sleep(LATER_MS)
            own = ports(self.run.world, self.run.cluster)
            settle_decided(own, QUERY)
            retire(own, QUERY, HEIR)

        self.run.world.calm()
        self.run.world.spawn("operator at the end", "operator", again)
        self.run.world.run()
        held = [place for place, log in self.run.cluster.logs.items() if place[0] == TOPIC and log.open]
        if held:
            raise Violation(ALL_VISIBLE, f"something is open in {held}")


def _what(head: Head) -> tuple[int, int] | None:
    return None if head.decision is None else (head.decision.batch, head.decision.rev)


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts the query again reads the error, and does not."""
    monkeypatch.setattr(driver, "_FINAL", (*driver._FINAL, "EOS_QUERY_RETIRED"))


def play(seed: int) -> Retired:
    retired = Retired(seed)
    retired.play()
    return retired


def test_a_retired_query_decides_nothing():
    """Whatever strikes it and the operator; and it is retired in the middle of its work often enough."""
    found = [play(seed) for seed in range(SCHEDULES)]
    amid = [r for r in found if r.heads and "EOS_QUERY_RETIRED" in r.run.query.stops]
    assert len(amid) > SCHEDULES // 5


def _unmarked(patch: pytest.MonkeyPatch) -> None:
    """A start that does not look at the mark: the retired query goes on as after an abort."""
    patch.setattr("spark_eos.protocol.status.marked", lambda head, topic: None)


def _unsettled(patch: pytest.MonkeyPatch) -> None:
    """What is decided is left to the next start, which never comes."""
    patch.setattr(commands, "_settled", lambda ports, head, passed, **_: head)
    patch.setattr("tests.simulation.test_replays.settle_decided", lambda ports, query: None)


@pytest.mark.parametrize(("mistake", "breaks"), [(_unmarked, DECIDES_NOTHING), (_unsettled, ALL_VISIBLE)])
def test_known_mistakes_are_seen(mistake, breaks):
    """Each is put back, and breaks what it would cost."""
    assert first_broken(mistake, play).invariant == breaks
