"""Plays a schedule: a new world, its cluster, a scenario in it, and the judge."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from spark_eos.errors import EosError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.source import copying, small_ranges

from .cluster import Cluster
from .copies import SOURCE, fill
from .faults import Schedule, Turn, is_mild
from .judge import come_to_rest, judge_mild, judge_query, judge_read, judge_writes
from .query import Progress, forget, start
from .scenarios import TRANSACTIONS, Attempt, Scene, read_back, read_together, settle, write_and_commit
from .two_phase import FENCING_LEVEL
from .world import Violation, World

#: No scenario goes on for longer, whatever happens.
LIMIT_S = 6_000.0

#: Of a query, with faults, and without.
_STARTS, _CALM_STARTS = 6, 4


@dataclass
class Stage:
    """``stops``: the errors by which starts of the query have ended."""

    world: World
    cluster: Cluster
    scene: Scene
    stops: list[EosError] = field(default_factory=list)


@contextmanager
def staged(schedule: Schedule) -> Iterator[Stage]:
    """A new world for this schedule, in which our code runs; nothing of it is kept."""
    world = World(schedule.seed, LIMIT_S)
    cluster = Cluster(world, schedule, {"out": 3, "ledger": 2, SOURCE: 3})
    properties = {"bootstrap.servers": cluster.bootstrap_servers, "batch.size": "120", "client.id": "c"}
    scene = Scene(KafkaProperties(properties), "out", "ledger", 3, "tx", random.Random(schedule.seed + 1))
    before = random.getstate()
    random.seed(schedule.seed)  # in which order our code asks brokers
    try:
        with world.installed():
            try:
                yield Stage(world, cluster, scene)
            finally:
                forget()
    finally:
        random.setstate(before)


def writes(stage: Stage) -> None:
    """Transactions of a topic, each told and judged; then all is read back."""
    chance = stage.scene.chance
    wrapping = not stage.cluster.schedule.strict and chance.random() < 0.5
    _judge(stage, write_and_commit(_asking(stage), first_sequence=2**31 - chance.randrange(1, 30) if wrapping else 0))


def _asking(stage: Stage) -> Scene:
    """The scene, in which transactions may ask for two-phase commit where the sink does."""
    if stage.cluster.schedule.level == FENCING_LEVEL:
        stage.scene = replace(stage.scene, two_phase=stage.cluster.schedule.two_phase)
    return stage.scene


def copies(stage: Stage) -> None:
    """Transactions of ranges that are copied from another topic, judged in the same way. The topic may take less than
    what is in the other one."""
    chance = stage.scene.chance
    wrapping = not stage.cluster.schedule.strict and chance.random() < 0.5
    work = fill(stage.cluster, chance, TRANSACTIONS)
    if not is_mild(stage.cluster.schedule) and chance.random() < 0.5:
        for partition in range(stage.scene.partitions):
            stage.cluster.partitions["out", partition].largest = 300
    first = 2**31 - chance.randrange(1, 30) if wrapping else 0
    small = chance.choice((0, 0, 150, 1 << 20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "is_small", lambda batch: batch.size < small)
        attempts = write_and_commit(_asking(stage), first_sequence=first, work=work)
    _judge(stage, attempts)


def _judge(stage: Stage, attempts: list[Attempt]) -> None:
    meanwhile = [read_back(stage.scene, p) for p in range(stage.scene.partitions)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_ranges, "MOST_BYTES", stage.scene.chance.choice((300, 1 << 20)))
        together = read_together(stage.scene, meanwhile)
    for partition, rows in together.items():
        if rows != meanwhile[partition].rows:
            raise Violation(f"partition {partition}: {meanwhile[partition].rows} were read, and {rows} together")
    come_to_rest(stage.world, stage.cluster)
    if stage.scene.two_phase is not None:
        settle(stage.scene, attempts)
        come_to_rest(stage.world, stage.cluster)
    judge_writes(stage.cluster, stage.scene, attempts)
    judge_mild(stage.cluster.schedule, attempts)
    for partition, read in enumerate(meanwhile):
        after = read_back(stage.scene, partition)
        judge_read(stage.cluster, stage.scene, partition, after)
        if read.rows != after.rows[: len(read.rows)]:
            raise Violation(f"partition {partition}: {read.rows} were read, and then {after.rows}")


def query(stage: Stage) -> None:
    """A query that is started again after each stop. When the faults are over, it has to end."""
    chance = stage.scene.chance
    turns = {n: (turn, seconds) for n, turn, seconds in stage.cluster.schedule.turns}
    plan = stage.cluster.schedule.two_phase
    if plan is not None:
        turns |= {n: (Turn.STALLS, seconds) for n, seconds in plan.turns}
    progress = Progress(3, turns, stops=stage.stops)
    stage.scene = replace(stage.scene, with_group=chance.random() < 0.5, two_phase=plan)
    for number in range(_STARTS + _CALM_STARTS):
        if number == _STARTS:
            stage.cluster.rest()
            progress.turns.clear()
        _start(stage, progress)
        if progress.done == progress.batches:
            break
        stage.world.sleep(chance.choice((0.1, 5.0, 70.0)))
    come_to_rest(stage.world, stage.cluster)
    if plan is not None and progress.done == progress.batches:
        _write_once_more(stage, progress)
    judge_query(stage.cluster, stage.scene, progress)


def _write_once_more(stage: Stage, progress: Progress) -> None:
    """No timeout ends what starts have left open, but the next one has to."""
    progress.batches += 1
    progress.turns.clear()
    for _ in range(_CALM_STARTS):
        if progress.done < progress.batches:
            _start(stage, progress)
    come_to_rest(stage.world, stage.cluster)


def _start(stage: Stage, progress: Progress) -> None:
    """Where two-phase commit is not to be had, a start that asks for it has to say so, and write nothing."""
    plan, schedule = stage.cluster.schedule.two_phase, stage.cluster.schedule
    withheld = plan is not None and (schedule.level < FENCING_LEVEL or plan.is_withheld(stage.cluster.nodes))
    asks = withheld and progress.asks(plan)
    before = progress.done, len(progress.stops), stage.cluster.offer.granted
    start(stage.scene, progress)
    if asks and (progress.done > before[0] or len(progress.stops) == before[1]):
        raise Violation("a start went on where two-phase commit is not to be had")
    if withheld and stage.cluster.offer.granted > before[2]:
        raise Violation("a producer was begun where two-phase commit is not to be had")


Play = Callable[[Stage], None]
PLAYS: dict[str, Play] = {"writes": writes, "copies": copies, "query": query}


def play(schedule: Schedule, name: str) -> Stage:
    """Raises Violation."""
    with staged(schedule) as stage:
        try:
            PLAYS[name](stage)
        except Violation as violation:
            raise Violation(f"{violation}\n{name}, {schedule}") from violation
        return stage


def broken(schedule: Schedule, name: str) -> str | None:
    """How it breaks, if it does. An error that is no Violation is one without a name."""
    try:
        play(schedule, name)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def shrink(schedule: Schedule, name: str) -> Schedule:
    """With as few faults as still break it."""
    for group in ("faults", "lines", "turns"):
        for entry in getattr(schedule, group):
            fewer = replace(schedule, **{group: tuple(e for e in getattr(schedule, group) if e != entry)})
            if broken(fewer, name):
                schedule = fewer
    return schedule
