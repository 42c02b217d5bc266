"""A query is retired while it runs, by `spark-eos replay` or by a mirror that takes it over: from then on it decides
nothing, and restarts for nothing. A replay leaves nothing open; a mirror begins exactly where the query has ended.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pytest

from spark_eos.errors import EosError
from spark_eos.protocol import commands
from spark_eos.protocol.commands import SettledState, hand_over, retire, settle_decided, settled_state
from spark_eos.protocol.head import Head, Successor

from .breaking import first_broken
from .ledger import PREFIX, QUERY, ports
from .plan import TOPIC
from .play import Run
from .schedule import Extras, draw
from .world import Actor, Fault, Strike, Violation

HEIR = Successor("the next", "/next")
AT = ("", "", "commit.entered", "commit.taken", "commit.verified", "commit.decided", "commit.ended", "open.taken")
DECIDES_NOTHING = "a retired query decides nothing"
ALL_VISIBLE = "what a retired query has decided is visible, and nothing is open"
WHERE_IT_ENDED = "the taker begins where the other one has ended"
#: How long a taker reads the map: the query may decide meanwhile.
READS_MS = 500
LATER_MS = 600_000


class Retired:
    """A schedule in which somebody retires the query, ``times`` times, each at a moment that chance chooses."""

    times = 1

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        schedule = draw(chance, extras=Extras())
        strikes = [
            Fault(chance.randrange(120), Strike.OPERATOR_ABORTS, 0, chance.choice(AT)) for _ in range(self.times)
        ]
        self.run = Run(replace(schedule, faults=(*schedule.faults, *strikes)))
        #: What is known of the query by whoever has retired it.
        self.done: list[Head | SettledState] = []
        self.run.world.handlers[Strike.OPERATOR_ABORTS] = self._strike

    def _strike(self, actor: Actor, fault: Fault) -> bool:
        self.run.world.spawn(f"operator {self.run.world.step}", "operator", self._try)
        return True

    def _try(self) -> None:
        with contextlib.suppress(EosError):
            self._retire()

    def _retire(self) -> None:
        raise NotImplementedError

    def play(self) -> None:
        """Raises Violation."""
        self.run.query.start()
        self.run.world.run()
        if self.run.watch.ledger_lost or not self.done:
            return  # nobody knows any more that it was retired; or it never was
        self._conclude()
        published = self.run.watch.heads
        first = next(n for n, head in enumerate(published) if head.marks.successor is not None)
        for before, after in zip(published[first:], published[first + 1 :], strict=False):
            if not commands.is_same(after.decision, before.decision) or after.marks != before.marks:
                raise Violation(DECIDES_NOTHING, f"{before.decision}, then {after.decision}")
        self._check(published[first])

    def _conclude(self) -> None:
        """When all is quiet."""

    def _check(self, retired: Head) -> None:
        """What must hold of the head by which the query was retired."""


class Replayed(Retired):
    """By a replay; again when all is quiet."""

    def _retire(self) -> None:
        self.done.append(retire(ports(self.run.world, self.run.cluster), QUERY, HEIR).head)

    def _conclude(self) -> None:
        """The command is repeated: it ends what its first try could not."""

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

    def _check(self, retired: Head) -> None:
        end = 0 if retired.decision is None else self.run.query.offsets[retired.decision.batch][1]
        if set(range(end)) != self.run.watch.seen.keys() and not self._rows_taken():
            raise Violation(ALL_VISIBLE, f"rows up to {end}, seen {sorted(self.run.watch.seen)}")

    def _rows_taken(self) -> bool:
        """Retention or an operator has taken rows in this schedule; then the last decision may be unclear for good."""
        return any(log.begin for log in self.run.cluster.logs.values())


class TakenOver(Retired):
    """By two takers."""

    times = 2

    def _retire(self) -> None:
        own = ports(self.run.world, self.run.cluster)
        for _ in own.retrying():
            seen = settled_state(own)
            self.run.world.sleep(READS_MS)
            if hand_over(own, Successor(f"taker {self.run.world.step}", "/new"), seen.decision, PREFIX):
                self.done.append(seen)
                return

    def _check(self, retired: Head) -> None:
        for seen in self.done:
            if not commands.is_same(seen.decision, retired.decision):
                raise Violation(WHERE_IT_ENDED, f"{retired.decision}, and it has seen {seen.decision}")


@pytest.mark.parametrize(("kind", "schedules"), [(Replayed, 200), (TakenOver, 100)])
def test_a_retired_query_decides_nothing(kind, schedules):
    """Whatever strikes it and the operator; and it is retired in the middle of its work often enough."""
    found = [kind(seed) for seed in range(schedules)]
    for retired in found:
        retired.play()
    amid = [retired for retired in found if retired.done and "EOS_QUERY_RETIRED" in retired.run.query.stops]
    assert len(amid) > schedules // 5


def _unmarked(patch: pytest.MonkeyPatch) -> None:
    """A start that does not look at the mark: the retired query goes on as after an abort."""
    patch.setattr("spark_eos.protocol.status.stopping_mark", lambda head, topic: None)


def _unsettled(patch: pytest.MonkeyPatch) -> None:
    """What is decided is left to the next start, which never comes."""
    patch.setattr(commands, "_settled", lambda ports, head, passed, **_: head)
    patch.setattr("tests.simulation.test_retired.settle_decided", lambda ports, query: None)


def _unasked(patch: pytest.MonkeyPatch) -> None:
    """The query is retired whatever it has decided since somebody has looked."""
    patch.setattr("tests.simulation.test_retired.hand_over", _whatever_was_seen)


def _whatever_was_seen(own, successor, seen, prefix):
    return commands.hand_over(own, successor, settled_state(own).decision, prefix)


@pytest.mark.parametrize(
    ("kind", "mistake", "breaks"),
    [
        (Replayed, _unmarked, DECIDES_NOTHING),
        (Replayed, _unsettled, ALL_VISIBLE),
        (TakenOver, _unmarked, DECIDES_NOTHING),
        (TakenOver, _unasked, WHERE_IT_ENDED),
    ],
)
def test_known_mistakes_are_seen(kind, mistake, breaks):
    """Each is put back, and breaks what it would cost."""
    assert first_broken(mistake, lambda seed: kind(seed).play()) == breaks
