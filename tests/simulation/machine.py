"""Schedules: drawn from a source of chance, run, told, shrunk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from spark_eos.failpoints import IN_QUERIES
from spark_eos.protocol.head import Pair
from spark_eos.protocol.names import ledger_name
from spark_eos.protocol.whole import FRESH_MS

from .coordinator import WEEK_MS, Cluster, NextAppend, PartitionLog
from .end_txn import PREPARED
from .invariants import Watch
from .ledger import PREFIX, QUERY
from .operator import Operator
from .plan import FIRST, LATER, TOPIC, Clocks, Deal, Library, Plan
from .scenes import SCENES, SIZES, Scene
from .spark import Query
from .topics import Topics
from .world import Actor, Fault, Strike, Violation, World

APPEND_MS = 30_000
"""No append to the coordinator's log takes longer: the broker gives it up."""


@dataclass(frozen=True)
class Schedule:
    """All that decides what happens."""

    plan: Plan
    faults: tuple[Fault, ...] = ()
    quantum: int = 5
    first_epoch: int = 0
    double_fence: bool = False


@dataclass
class Run:
    """A schedule at work; what is left of it afterwards is for the curious."""

    schedule: Schedule
    traced: bool = False

    def __post_init__(self) -> None:
        schedule = self.schedule
        self.world = World(schedule.faults, schedule.quantum)
        self.cluster = Cluster(self.world, first_epoch=schedule.first_epoch, double_fence=schedule.double_fence)
        self.cluster.transaction_version = schedule.plan.transaction_version
        self.query = Query(self.world, self.cluster, schedule.plan)
        self.operator = Operator(self.world, self.cluster)
        self.watch = Watch(self.cluster, ledger_name(PREFIX, QUERY), lambda: self.query.stage_retried)
        self.watch.is_job = bool(schedule.plan.runs)
        if not schedule.double_fence:  # a fence that failed in 4.0.0 looks like one that worked
            self.query.stopped = self.watch.stopped
        self.query.logged = self.watch.logged
        self.query.decider = self.watch.deciders.__getitem__
        if self.traced:
            self.world.trace = []
        for strike, handler in {
            Strike.APPEND_SLOW: self._append,
            Strike.APPEND_FAILS: self._append,
            Strike.APPEND_FAILS_LATER: self._append,
            Strike.TIMEOUT_SLOW: self._timeout,
            Strike.TIMEOUT_FAILS: self._timeout,
            Strike.MARKERS_LATE: self._markers,
            Strike.MARKERS_TORN: self._markers,
            Strike.COORDINATOR_MOVES: self._move,
            Strike.COORDINATOR_STALE: self._stale,
            Strike.FEATURE_CHANGES: self._change_feature,
            Strike.WEEK_PASSES: self._week,
            Strike.RETENTION: self._retention,
            Strike.RETENTION_OF_OPEN: self._retention_of_open,
            Strike.ABORTED_IN_PLACE: self._abort_in_place,
        }.items():
            self.world.handlers[strike] = handler
        self.world.handlers.update(
            Topics(self.world, self.cluster, self._ledger_lost, self._is_past_the_first).handlers
        )

    def play(self) -> None:
        """Raises Violation."""
        self.query.start()
        self.world.run()
        if not self.query.done:
            raise Violation("goes on", f"the query ended with {self.query.stops[-3:]}")
        if any(self.schedule.plan.two_phase) and not self.query.over and not self.watch.ledger_lost:
            self.operator.conclude()
        self.watch.conclude(self.query)

    def _is_past_the_first(self) -> bool:
        """Whether a start tells by its checkpoint alone that the query has a head."""
        return 0 in self.query.committed and not self.schedule.plan.runs

    def _ledger_lost(self) -> None:
        self.watch.ledger_lost = True

    def _append(self, actor: Actor, fault: Fault) -> bool:
        succeeds = fault.strike is Strike.APPEND_SLOW
        logged = fault.strike is not Strike.APPEND_FAILS
        self.cluster.appends[actor] = NextAppend(min(fault.size, APPEND_MS), succeeds, logged)
        return True

    def _timeout(self, actor: Actor, fault: Fault) -> bool:
        succeeds = fault.strike is Strike.TIMEOUT_SLOW
        self.cluster.appends[None] = NextAppend(min(fault.size, APPEND_MS), succeeds, logged=succeeds)
        return True

    def _markers(self, actor: Actor, fault: Fault) -> bool:
        first = fault.size if fault.strike is Strike.MARKERS_LATE else 0
        self.cluster.next_markers = (first, fault.size)
        return True

    def _move(self, actor: Actor, fault: Fault) -> bool:
        self.cluster.move(fault.size, min(fault.size, 2_000))
        return True

    def _stale(self, actor: Actor, fault: Fault) -> bool:
        self.cluster.stale = 1 + fault.size % 3
        return True

    def _change_feature(self, actor: Actor, fault: Fault) -> bool:
        """Up or down. With two-phase commit it stays, as that needs the newest."""
        if not any(self.schedule.plan.two_phase):
            self.cluster.transaction_version = (self.cluster.transaction_version + 1 + fault.size % 2) % 3
        return True

    def _week(self, actor: Actor, fault: Fault) -> bool:
        """Not where the ledger is lost and nothing else is left of micro-batch 0, as in `Topics`."""
        if self.watch.ledger_lost and not self._is_past_the_first():
            return False
        self.world.now += WEEK_MS + 3_600_000
        self.world.at(0, lambda: self.world.at(2_000, self.cluster.expire))
        return True

    def _retention(self, actor: Actor, fault: Fault) -> bool:
        for place, log in self.cluster.logs.items():
            if place[0] == TOPIC:
                log.begin = log.stable
        return True

    def _left_alone(self, log: PartitionLog) -> list[int]:
        """Producer ids whose transaction is open here for a minute, or was decided by a run that is dead: nobody takes
        rows of another, nor of what waits for its markers only, which its coordinator says."""
        found = []
        for producer_id in sorted(log.open):
            name, entry = self.cluster.owner(producer_id)
            pair = Pair(name, producer_id, log.producers[producer_id].epoch)
            alive = {driver.run for driver in self.query.drivers if driver.may_commit}
            abandoned = pair in self.watch.decided and self.watch.deciders[self.watch.decided[pair].batch] not in alive
            if entry.state not in PREPARED and (abandoned or self.world.now - entry.started_ms >= FRESH_MS):
                found.append(producer_id)
        return found

    def _retention_of_open(self, actor: Actor, fault: Fault) -> bool:
        logs = [log for place, log in self.cluster.logs.items() if place[0] == TOPIC and log.open]
        struck = [log for log in logs if len(self._left_alone(log)) == len(log.open)]
        for log in struck:
            log.begin = log.end
        return bool(struck)

    def _abort_in_place(self, actor: Actor, fault: Fault) -> bool:
        for place, log in self.cluster.logs.items():
            ids = self._left_alone(log) if place[0] == TOPIC else []
            if ids:
                producer_id = ids[fault.size % len(ids)]
                log.mark(producer_id, log.producers[producer_id].epoch, commit=False)
                self.cluster.marked(place, log)
                return True
        return False


def play(schedule: Schedule, traced: bool = False) -> Run:
    run = Run(schedule, traced)
    run.play()
    return run


def draw(chance: random.Random, scenes: tuple[Scene, ...] | None = None) -> Schedule:
    """A schedule, by chance: scenes that are known to be hard, and faults that know nothing of them."""
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
    plan = replace(plan, notes=not plan.runs and chance.random() < 0.3)
    return replace(schedule, plan=replace(plan, direct=not plan.runs and chance.random() < _DIRECT))


_DIRECT = 0.25
"""How many of the streams give ranges to their tasks."""

_JOBS = 0.15
"""How many of the schedules are of batch writes."""


_CLOCKS = (
    *[Clocks()] * 4,
    Clocks(driver=3_600_000),
    Clocks(driver=-3_600_000),
    Clocks(tasks=600_000),
    Clocks(tasks=-600_000),
    Clocks(brokers=3_600_000),
    Clocks(brokers=-3_600_000, tasks=500),
)
_LIBRARIES = ((Library(),), (FIRST, LATER), (FIRST, FIRST, LATER), (LATER, FIRST))
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
#: Only by scenes: within a minute after a transaction has begun or was looked at, it counts as whole.
_AIMED = (Strike.RETENTION_OF_OPEN, Strike.ABORTED_IN_PLACE, Strike.LEDGER_LOST, Strike.LEADER_STALE)
_STRIKES = tuple(s for s in Strike if s not in _AIMED for _ in range(1 if s in _RARE else 4))

_PLACES = (
    *("" for _ in range(20)),
    *(point for point in IN_QUERIES if point not in ("prepare.wrote", "commit.between")),
    *(f"{request} {PREFIX}-{QUERY}-{of}" for request in ("init", "add", "produce", "end") for of in ("", "ledger")),
    *("ledger ", "fetch data", "list", "describe", "producers", "may ", "result ", "commit log", "offset log"),
)
"""Where faults are aimed at: often anywhere, else at one of the protocol's steps."""


def shrink(schedule: Schedule, invariant: str) -> Schedule:
    """The smallest schedule on the way down that still breaks the invariant."""
    while True:
        for smaller in _smaller(schedule):
            if broken(smaller) == invariant:
                schedule = smaller
                break
        else:
            return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    faults = schedule.faults
    for n in range(len(faults)):
        yield replace(schedule, faults=faults[:n] + faults[n + 1 :])
        if faults[n].then is not None:
            yield replace(schedule, faults=(*faults[:n], replace(faults[n], then=None), *faults[n + 1 :]))
    plan = schedule.plan
    if len(plan.rows) > 1:
        yield replace(schedule, plan=replace(plan, rows=plan.rows[:-1]))
    if schedule.double_fence:
        yield replace(schedule, double_fence=False)
    if schedule.first_epoch:
        yield replace(schedule, first_epoch=0)
    if plan.runs > 1:
        yield replace(schedule, plan=replace(plan, runs=plan.runs - 1))
    if plan.transaction_version != 2:
        yield replace(schedule, plan=replace(plan, transaction_version=2))
    if plan.lingering:
        yield replace(schedule, plan=replace(plan, lingering=False))


def broken(schedule: Schedule) -> str | None:
    """The name of the invariant that the schedule breaks."""
    try:
        play(schedule)
    except Violation as violation:
        return violation.invariant
    return None
