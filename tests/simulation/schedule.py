"""Schedules: what decides all that happens, drawn from a source of chance."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_eos.base.failpoints import IN_QUERIES

from . import situations as hard
from .checkpoint import SIZES as LOSSES
from .ledger import PREFIX
from .neighbours import draw_others
from .plan import FIRST, LATER, OWN_TOPIC, QUERY, TOPIC, Clocks, Deal, Plan
from .situations import SCENES, SIZES, Scene
from .topics import CUTS
from .world import Fault, Strike


@dataclass(frozen=True)
class Schedule:
    """All that decides what happens. ``others``: queries beside the first one; ``together``: in its application."""

    plan: Plan
    faults: tuple[Fault, ...] = ()
    quantum: int = 5
    first_epoch: int = 0
    double_fence: bool = False
    others: tuple[Plan, ...] = ()
    together: bool = False

    @property
    def plans(self) -> tuple[Plan, ...]:
        return self.plan, *self.others


@dataclass(frozen=True)
class Extras:
    """How likely it is that a schedule has these: ``others``, several queries; ``losses``, files of the checkpoint that
    are lost; ``topics``, output topics that are deleted; ``cuts``, a ledger that loses its newest records; ``begins``,
    one that is lost, maybe twice, and begun anew by ``ledger.begin``; ``moves``, another topic from some start on;
    ``outputs``, partitions of it that lose their newest records; ``aborts``, transactions that an operator aborts in
    one of their partitions; ``restarts``, brokers that have not heard of topics yet; ``sources``,
    a cluster that does not have the topic that is read, for a while; ``refusals``, ends that a coordinator refuses."""

    others: float = 0.0
    losses: float = 0.0
    topics: float = 0.0
    cuts: float = 0.0
    begins: float = 0.0
    moves: float = 0.0
    outputs: float = 0.0
    aborts: float = 0.0
    restarts: float = 0.0
    sources: float = 0.0
    refusals: float = 0.0


#: In schedules of all kinds.
SOME = Extras(
    others=0.06,
    losses=0.05,
    topics=0.05,
    cuts=0.05,
    begins=0.05,
    moves=0.05,
    outputs=0.06,
    aborts=0.1,
    restarts=0.06,
    sources=0.05,
    refusals=0.05,
)


def draw(chance: random.Random, scenes: tuple[Scene, ...] | None = None, extras: Extras | None = None) -> Schedule:
    """A schedule, by chance: scenes that are known to be hard, and faults that know nothing of them. Some schedules
    have ``extras``: where scenes are chosen, only those that are told."""
    return _extended(chance, _drawn(chance, scenes), extras or (Extras() if scenes is not None else SOME))


def _extended(chance: random.Random, schedule: Schedule, extras: Extras) -> Schedule:
    """Drawn last, so that a schedule is the same with and without them, but for these."""
    if not schedule.plan.runs and chance.random() < extras.others:
        beside = draw_others(chance, schedule.plan)
        schedule = replace(schedule, others=beside, together=chance.random() < 0.5)
    if not schedule.plan.runs and chance.random() < extras.losses:
        schedule = _with(schedule, _some(chance, schedule, Strike.CHECKPOINT_LOST, LOSSES, hard.LOST_FILES))
    if chance.random() < extras.topics:
        schedule = _with(schedule, _some(chance, schedule, Strike.TOPIC_DELETED, SIZES, hard.TOPIC_DELETED))
    if chance.random() < extras.cuts:
        (cut, *_) = _some(chance, schedule, Strike.LEDGER_CUT, range(2 * CUTS), hard.LEDGER_CUT)
        dies = Fault(0, Strike.DRIVER_DIES) if cut.size < CUTS else None
        schedule = _with(schedule, (replace(cut, then=dies),))
    if not schedule.plan.runs and chance.random() < extras.begins:
        schedule = replace(schedule, plan=replace(schedule.plan, sets_begin=chance.random() < _SETS_BEGIN))
        schedule = _with(schedule, _ledger_losses(chance, schedule))
    if not schedule.plan.runs and chance.random() < extras.moves:
        schedule = replace(schedule, plan=replace(schedule.plan, topics=chance.choice(_TOPICS)))
    if chance.random() < extras.outputs:
        schedule = _with(schedule, _some(chance, schedule, Strike.OUTPUT_CUT, range(4 * CUTS), hard.OUTPUT_CUT))
        if chance.random() < _DIES:
            where = chance.choice(hard.OUTPUT_CUT)
            pause = Fault(0, Strike.PAUSE, chance.choice((3, 65_000)), "task: ledger ")
            dies = Fault(schedule.faults[-1].step, Strike.DRIVER_DIES, 0, where, pause)
            schedule = _with(schedule, (dies,))
    if chance.random() < extras.aborts:
        aborts = _some(chance, schedule, Strike.ABORTED_IN_PLACE, SIZES, hard.ABORTED_IN_PLACE)
        dies = Fault(0, Strike.DRIVER_DIES, 0, chance.choice(hard.AFTER_AN_ABORT))
        schedule = _with(
            schedule, tuple(replace(abort, then=dies if chance.random() < _DIES / 2 else None) for abort in aborts)
        )
    return _with_answers(chance, schedule, extras)


def _with_answers(chance: random.Random, schedule: Schedule, extras: Extras) -> Schedule:
    """With brokers that answer what clients seldom hear; nothing is drawn for those that no schedule has."""
    for likely, drawn in ((extras.restarts, _restarts), (extras.sources, _sources), (extras.refusals, _refusals)):
        if likely and chance.random() < likely:
            schedule = _with(schedule, drawn(chance, schedule))
    return schedule


def _restarts(chance: random.Random, schedule: Schedule) -> tuple[Fault, ...]:
    """Brokers that have just started, one after the other."""
    first, again = (_some(chance, schedule, Strike.TOPICS_UNKNOWN, SIZES, hard.TOPICS_UNKNOWN)[0] for _ in range(2))
    return (replace(first, then=Fault(0, Strike.PAUSE, chance.choice((15_001, 70_000)), then=again)),)


def _sources(chance: random.Random, schedule: Schedule) -> tuple[Fault, ...]:
    return _some(chance, schedule, Strike.SOURCE_MISSING, SIZES, ("", "commit.verified", "commit.taken", "offset log"))


def _refusals(chance: random.Random, schedule: Schedule) -> tuple[Fault, ...]:
    return _some(chance, schedule, Strike.END_REFUSED, SIZES, hard.END_REFUSED)


def _ledger_losses(chance: random.Random, schedule: Schedule) -> tuple[Fault, ...]:
    """The ledger is lost, once or twice, and, as who has read it goes on, mostly the driver dies."""
    lost = []
    for _ in range(chance.choice((1, 2, 2))):
        strike = chance.choice((Strike.LEDGER_LOST, Strike.LEDGER_TRIMMED))
        (fault, *_) = _some(chance, schedule, strike, SIZES, hard.LEDGER_CUT)
        dies = Fault(0, Strike.DRIVER_DIES, 0, chance.choice(hard.AFTER_A_LOSS)) if chance.random() < _DIES else None
        lost.append(replace(fault, then=dies))
    return tuple(lost)


#: How many of those who read that ``ledger.begin`` may be set do so, and of the losses are followed by a death.
_SETS_BEGIN, _DIES = 0.8, 0.7
_TOPICS = ((TOPIC, OWN_TOPIC), (OWN_TOPIC, TOPIC, TOPIC), (TOPIC, TOPIC, OWN_TOPIC))


def _some(
    chance: random.Random, schedule: Schedule, strike: Strike, sizes: Sequence[int], places: Sequence[str]
) -> tuple[Fault, ...]:
    """One fault of a kind, or two."""
    horizon = 50 * len(schedule.plan.rows)
    return tuple(
        Fault(chance.randrange(horizon), strike, chance.choice(sizes), chance.choice(places))
        for _ in range(chance.choice((1, 1, 2)))
    )


def _with(schedule: Schedule, faults: tuple[Fault, ...]) -> Schedule:
    return replace(schedule, faults=(*schedule.faults, *faults))


def _drawn(chance: random.Random, scenes: tuple[Scene, ...] | None) -> Schedule:
    batches = chance.randint(1, 4)
    plan = Plan(
        rows=tuple(chance.choice((0, 1, 3, 4, 6)) for _ in range(batches)),
        tasks=tuple(chance.choice((2, 2, 2, 3)) for _ in range(3)),
        lingering=chance.random() < 0.5,
    )
    horizon = 50 * batches
    number = chance.choice((0, 1, 1, 2) if scenes is None else (1, 2))
    faults = [_scene(chance, horizon, chance.choice(scenes or SCENES)) for _ in range(number)]
    faults += [
        Fault(chance.randrange(horizon), chance.choice(_STRIKES), chance.choice(SIZES), chance.choice(_PLACES))
        for _ in range(chance.choice((0, 1, 2, 3, 5, 8, 12)))
    ]
    schedule = Schedule(
        plan,
        tuple(faults),
        quantum=chance.choice((1, 2, 5, 20, 1000)),
        first_epoch=chance.choice((0, 0, 32_760, 32_764, 32_765, 32_766)),
        double_fence=chance.random() < 0.2,
    )
    libraries, groups, deals = (chance.choice(choices) for choices in (_LIBRARIES, _GROUPS, _DEALS))
    idle_ms, timeout_ms = chance.choice((0, 0, 0, 3_000, 45_000)), chance.choice((60_000, 60_000, 60_000, 900_000))
    plan = replace(plan, libraries=libraries, groups=groups, deals=deals, idle_ms=idle_ms, timeout_ms=timeout_ms)
    plan = replace(plan, keeps=chance.random() < 0.7, clocks=chance.choice(_CLOCKS))
    two_phase, version = chance.choice(_TWO_PHASE), chance.choice((0, 1, 2, 2))
    plan = replace(plan, two_phase=two_phase if version == 2 else (False,), transaction_version=version)
    if chance.random() < _JOBS:
        plan = replace(plan, runs=chance.choice((1, 2, 3)), rows=plan.rows[:1], groups=(None,), idle_ms=0)
    notes, copy = (not plan.runs and chance.random() < likely for likely in (0.3, _COPY))
    return replace(schedule, plan=replace(plan, notes=notes and not copy, copy=copy))


#: How many of the streams give ranges to their tasks.
_COPY = 0.25

#: How many of the schedules are of batch writes.
_JOBS = 0.15


_CLOCKS = (
    *[Clocks()] * 4,
    Clocks(driver=3_600_000),
    Clocks(driver=-3_600_000),
    Clocks(tasks=600_000),
    Clocks(tasks=-600_000),
    Clocks(brokers=3_600_000),
    Clocks(brokers=-3_600_000, tasks=500),
)
_LIBRARIES = ((FIRST,), (FIRST, LATER), (FIRST, FIRST, LATER), (LATER, FIRST))
_DEALS = (*[(deal,) for deal in Deal], (Deal.TURNS, Deal.BACKWARDS), (Deal.TURNS, Deal.RUNS, Deal.BACKWARDS))
_TWO_PHASE = ((False,), (False,), (True,), (True, False), (False, True))
_GROUPS = (("group",), ("group",), ("group", "other"), (None, "group"))


def _scene(chance: random.Random, horizon: int, scene: Scene) -> Fault:
    """The scene's faults one after the other, from some step on."""
    fault = None
    for strike, sizes, places in reversed(scene):
        fault = Fault(0, strike, chance.choice(sizes), chance.choice(places), fault)
    assert fault is not None
    return replace(fault, step=chance.choice((0, chance.randrange(horizon))))


_RARE = (Strike.WEEK_PASSES, Strike.RETENTION, Strike.LEDGER_GROWS)
#: Only by scenes and extras.
_AIMED = (Strike.RETENTION_OF_OPEN, Strike.ABORTED_IN_PLACE, Strike.LEDGER_LOST, Strike.LEADER_STALE)
#: Only where a schedule has extras.
_EXTRA = (
    Strike.CHECKPOINT_LOST,
    Strike.TOPIC_DELETED,
    Strike.TOPICS_UNKNOWN,
    Strike.SOURCE_MISSING,
    Strike.END_REFUSED,
    Strike.LEDGER_CUT,
    Strike.LEDGER_TRIMMED,
    Strike.OUTPUT_CUT,
)
_STRIKES = tuple(s for s in Strike if s not in (*_AIMED, *_EXTRA) for _ in range(1 if s in _RARE else 4))

#: Where faults are aimed at: often anywhere, else at one of the protocol's steps.
_PLACES = (
    *("" for _ in range(20)),
    *(point for point in IN_QUERIES if point not in ("prepare.wrote", "commit.between")),
    *(f"{request} {PREFIX}-{QUERY}-{of}" for request in ("init", "add", "produce", "end") for of in ("", "ledger")),
    *("ledger ", "fetch data", "list", "describe", "producers", "may ", "result ", "commit log", "offset log"),
)
