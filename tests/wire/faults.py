"""What may happen to connections, requests and brokers, and where: a schedule of it is drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from spark_eos.kafka.codes import Code

from .codec import NAMES
from .sockets import Line
from .two_phase import TwoPhase, draw_two_phase


class Kind(Enum):
    """What may happen to a request. The amount is seconds, where there is one, or an error code."""

    LOST = "the connection breaks before the request has an effect"
    ANSWER_LOST = "the connection breaks after that"
    SILENT = "no effect, no answer, to this request and all that follow"
    ANSWER_SILENT = "effects, but no answer any more"
    LATE = "it is worked on late, even when the client has gone"
    ANSWER_LATE = "its answer is late"
    CODE = "refused with a code, without effect"
    CODE_AFTER = "refused with a code that leaves open whether it had an effect; it had"
    OTHER_NUMBER = "answered by the number of another request"
    REPEATED = "the answer before comes a second time, first"
    SIZE = "an answer of an impossible size"
    TORN = "an answer that ends before its fields do"
    FLIPPED = "a bit of the records is wrong"
    THROTTLED = "the client is throttled, and the connection is not read for so long"
    LEADER_MOVES = "what it is about has another leader now"
    RESTART = "the broker is started again, and is away for so long"
    COORDINATORS_MOVE = "all coordinators are others now"
    INCOMPLETE = "the last topic that is asked about is not looked at, and the answer is silent about it"


#: What is drawn; no broker is known that answers incompletely, and what only lists has no way to say so.
DRAWN = tuple(kind for kind in Kind if kind is not Kind.INCOMPLETE)


#: Codes by API that brokers answer to what they have, or may have, done.
AFTER = {0: (7, 20), 24: (7, 15), 26: (7, 15, 16), 28: (7, 15), 22: (7, 15)}
#: What only a broker says that has the rows; a lie about it would be one about the outcome.
_CLAIMS = {Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER}
CODES = tuple(int(code) for code in Code if code not in _CLAIMS)
#: Codes that pass; the others end what is asked, as a rule.
PASSING = (3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 51, 56, 74, 75, 78)
_SECONDS = (0.01, 0.3, 2.0, 9.0, 35.0, 70.0)


@dataclass(frozen=True)
class Fault:
    """It strikes the ``nth`` request of the ``api``, from 0, and those after it, so many ``times``."""

    api: int
    nth: int
    kind: Kind
    amount: float = 0.0
    times: int = 1

    def __str__(self) -> str:
        return f"{NAMES[self.api]} {self.nth}: {self.kind.name} {self.amount:g}, {self.times} times"


class Turn(Enum):
    """What may happen to a process of the query, at a point of the protocol."""

    STALLS = "it sleeps"
    OVERTAKEN = "it sleeps, and meanwhile another driver runs the query"
    DIES = "it is gone, and what it had open stays open"


@dataclass(frozen=True)
class Schedule:
    """``lines``: how the connections behave that are opened first, second, …; ``brokers``: how many there are.

    ``turns``: what happens to the query at its points, by number; seconds that it sleeps. ``strict``,
    ``says_duplicate``: see `Partition`. ``markers_s``: how long markers may take. ``level``: the cluster's
    transaction.version at first; ``levels``: later ones, each from so many connections on, which brokers hear of one
    after the other; ``old``: its brokers speak no more than those of Kafka 3.7. ``two_phase``: who asks for
    two-phase commit, and who offers it; without it nobody does.
    """

    seed: int
    faults: tuple[Fault, ...] = ()
    lines: tuple[tuple[int, Line], ...] = ()
    turns: tuple[tuple[int, Turn, float], ...] = ()
    brokers: int = 2
    strict: bool = True
    says_duplicate: bool = False
    markers_s: float = 0.002
    level: int = 2
    old: bool = False
    levels: tuple[tuple[int, int], ...] = ()
    two_phase: TwoPhase | None = None

    def __str__(self) -> str:
        told = [f"seed {self.seed}, {self.brokers} brokers, {self.strict=} {self.says_duplicate=} {self.markers_s=}"]
        told.append(f"  transaction.version {self.level}, {self.levels=}, {self.old=}")
        told += [f"  {self.two_phase}"] if self.two_phase is not None else []
        told += [f"  turn {n}: {turn.value}, {seconds:g} s" for n, turn, seconds in self.turns]
        return "\n".join(
            told + [f"  {fault}" for fault in self.faults] + [f"  line {n}: {how}" for n, how in self.lines]
        )


#: Faults up to this amount that our code gets over by itself, when they are few.
_MILD: dict[Kind, float] = {
    Kind.LOST: 100,
    Kind.ANSWER_LOST: 100,
    Kind.LATE: 2,
    Kind.ANSWER_LATE: 2,
    Kind.THROTTLED: 1,
    Kind.LEADER_MOVES: 100,
    Kind.COORDINATORS_MOVE: 100,
    Kind.REPEATED: 100,
    Kind.OTHER_NUMBER: 100,
}
_MILD_CODES = {0: (6, 19, 7, 51), 22: (14, 15, 16, 51), 24: (14, 15, 16, 51), 26: (14, 15, 16, 51), 3: (), 10: ()}


def is_mild(schedule: Schedule) -> bool:
    """Whether nobody may be told of an error: partial writes, small pieces, and up to three faults that pass."""
    lines = all(how.harmless for _, how in schedule.lines)
    return lines and len(schedule.faults) <= 3 and all(map(_is_mild, schedule.faults))


def _is_mild(fault: Fault) -> bool:
    if fault.times > 1:
        return False
    if fault.kind is Kind.CODE:
        return fault.amount in _MILD_CODES.get(fault.api, ())
    if fault.kind is Kind.ANSWER_SILENT:
        return fault.api == 0
    return fault.amount <= _MILD.get(fault.kind, -1)


_OFTEN = (0, 0, 0, 0, 1, 1, 2, 22, 22, 26, 26, 26, 3, 10, 65, 61, 66, 28, 18)
#: With transaction.version 0 and 1.
_OFTEN_PLAIN = (*_OFTEN, 24, 24, 24, 25)
_OF_TWO_PHASE = (22, 22, 22, 32, 65, 66, 26)
#: The nth request that is struck, by API: early ones are many, late ones few.
_FIRST = (0, 0, 0, 1, 1, 2, 3, 4, 6, 9, 14)


def draw(seed: int) -> Schedule:
    """A schedule: a mild one, with faults that pass; as a rule a harsh one."""
    level, old = random.Random(f"level {seed}").choice(((2, False), (2, False), (1, False), (0, True)))
    chance, often = random.Random(seed), _OFTEN if level > 1 else _OFTEN_PLAIN
    schedule = replace(_drawn(seed, chance, often), level=level, old=old)
    two_phase = draw_two_phase(seed, schedule.brokers, level)
    if two_phase is not None:
        return _with_two_phase(schedule, two_phase)
    return schedule if old else replace(schedule, levels=_levels(seed))


def _levels(seed: int) -> tuple[tuple[int, int], ...]:
    chance = random.Random(f"levels {seed}")
    changes = {chance.randrange(1, 25): chance.choice((1, 2)) for _ in range(chance.choice((0, 0, 1, 2)))}
    return tuple(sorted(changes.items()))


def _with_two_phase(schedule: Schedule, two_phase: TwoPhase) -> Schedule:
    chance = random.Random(f"two-phase faults {schedule.seed}")
    more = tuple(_fault(chance, _OF_TWO_PHASE) for _ in range(0 if is_mild(schedule) else chance.choice((0, 0, 1, 2))))
    return replace(schedule, two_phase=two_phase, faults=schedule.faults + more)


def _drawn(seed: int, chance: random.Random, often: Sequence[int]) -> Schedule:
    if chance.random() < 0.25:
        return _drawn_mildly(seed, chance, often)
    faults = tuple(_fault(chance, often) for _ in range(chance.choice((0, 1, 2, 2, 3, 4, 6))))
    lines = {chance.randrange(8): _line(chance) for _ in range(chance.choice((0, 0, 0, 1, 1, 2)))}
    turns = {chance.randrange(40): chance.choice(tuple(Turn)) for _ in range(chance.choice((0, 0, 1, 1, 2, 3)))}
    return Schedule(
        seed,
        faults,
        tuple(sorted(lines.items())),
        tuple((n, turn, chance.choice(_SECONDS)) for n, turn in sorted(turns.items())),
        brokers=chance.choice((1, 2, 2, 3)),
        strict=chance.random() < 0.7,
        says_duplicate=chance.random() < 0.3,
        markers_s=chance.choice((0.0005, 0.002, 0.05, 1.5)),
    )


def _drawn_mildly(seed: int, chance: random.Random, often: Sequence[int]) -> Schedule:
    faults = []
    while len(faults) < 3:
        fault = replace(_fault(chance, often), times=1)
        faults += [fault] if _is_mild(fault) else []
    lines = ((chance.randrange(6), Line(room=chance.choice((1, 7, 60, 500)))),)
    return Schedule(seed, tuple(faults), lines, brokers=chance.choice((1, 2, 3)), strict=chance.random() < 0.5)


def _fault(chance: random.Random, often: Sequence[int]) -> Fault:
    api, kind = chance.choice(often), chance.choice(DRAWN)
    if kind is Kind.FLIPPED:
        api = 1
    if kind is Kind.CODE_AFTER:
        api = chance.choice(tuple(AFTER))
        amount: float = chance.choice(AFTER[api])
    elif kind is Kind.CODE:
        amount = chance.choice(PASSING if chance.random() < 0.8 else CODES)
    elif kind is Kind.THROTTLED:
        amount = chance.choice((0.05, 1.0, 11.0))
    else:
        amount = chance.choice(_SECONDS)
    return Fault(api, chance.choice(_FIRST), kind, amount, times=chance.choice((1, 1, 1, 2, 4, 9)))


def _line(chance: random.Random) -> Line:
    how = chance.choice(("cut_up", "cut_down", "mute_up", "mute_down", "room", "piece"))
    if how == "room":
        return Line(room=chance.choice((1, 7, 60, 500)))
    if how == "piece":
        return Line(piece=chance.choice((1, 3, 11, 100)), pause_s=chance.choice((0.0, 0.001, 0.1)))
    where = chance.choice((chance.randrange(80), chance.randrange(800), chance.randrange(4000)))
    return Line(**{how: where}, reset=chance.random() < 0.5, room=chance.choice((1 << 16, 1 << 16, 13, 200)))
