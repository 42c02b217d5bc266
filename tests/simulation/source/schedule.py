"""Schedules: the query, its starts and what happens to its topics, drawn from a source of chance."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace

from .cluster import NAMES, Event, Fault
from .query import MOST_BATCHES, Start, Trigger


@dataclass(frozen=True)
class Schedule:
    """``options``: of all starts. ``topics``: those that are there at first, with a choice of what is in them."""

    options: tuple[tuple[str, str], ...]
    starts: tuple[Start, ...]
    topics: tuple[tuple[str, int], ...]
    faults: tuple[Fault, ...] = ()
    old_spark: bool = False
    by_id: bool = False


_ALL = (
    (("subscribe", "a,b"),),
    (("subscribe", "a,b,c"),),
    (("subscribePattern", "[abc]"),),
    (("subscribePattern", "[abc]"),),
    (("assign", json.dumps({"a": [0, 1], "b": [0]})),),
)
#: What a start reads instead, so that something is left; None: what is read else.
_OTHERS: dict[str, tuple[tuple[tuple[str, str], ...], ...]] = {
    "subscribe": ((("subscribe", "a"),),),
    "subscribePattern": ((("subscribePattern", "[ab]"),), (("subscribePattern", "[bc]"),)),
    "assign": ((("assign", json.dumps({"a": [0]})),),),
}
_EVENTS = (
    *[Event.WRITE] * 6,
    *[Event.OPEN, Event.END, Event.CRASH] * 2,
    *[Event.ELECT, Event.CUT, Event.EXPIRE, Event.RECREATE, Event.DELETE, Event.CREATE, Event.GROW] * 2,
    Event.COMPACT,
    Event.HIDE,
    Event.SHOW,
    Event.STALE,
    Event.WAIT,
)


@dataclass(frozen=True)
class Scene:
    """Where something shows that is rare otherwise: faults, each from one of these steps on and of one of these sizes;
    ``options``: of the query; ``fail``: of all starts."""

    faults: tuple[tuple[Event, range, range], ...]
    options: tuple[tuple[str, str], ...] = ()
    fail: bool | None = None


def draw(chance: random.Random, scene: Scene | None = None) -> Schedule:
    """A schedule, by chance."""
    selection = chance.choice(_ALL)
    topics = tuple((name, chance.randrange(16)) for name in NAMES if name == "a" or chance.random() < 0.6)
    starting = ("startingOffsets", chance.choice(("earliest", "earliest", "latest")))
    starts = tuple(_start(chance, selection[0][0]) for _ in range(chance.choice((1, 2, 3, 4))))
    horizon = chance.choice((40, 80, 160))
    faults = tuple(
        Fault(chance.randrange(horizon), chance.choice(_EVENTS), chance.randrange(240))
        for _ in range(chance.choice((0, 2, 4, 6, 9, 14)))
    )
    old_spark = chance.random() < 0.15
    by_id = not old_spark and chance.random() < 0.3
    schedule = Schedule((*selection, starting, *_limits(chance)), starts, topics, faults, old_spark, by_id)
    return schedule if scene is None else _with(chance, schedule, scene)


def _limits(chance: random.Random) -> tuple[tuple[str, str], ...]:
    if chance.random() < 0.5:
        return (("maxOffsetsPerTrigger", str(chance.choice((1, 2, 3, 5, 8)))),)
    if chance.random() < 0.3:
        return (("maxBytesPerTrigger", str(chance.choice((200, 500, 900)))),)
    if chance.random() < 0.3:
        return ("minOffsetsPerTrigger", str(chance.choice((3, 6)))), ("maxTriggerDelay", "4s")
    return ()


def _with(chance: random.Random, schedule: Schedule, scene: Scene) -> Schedule:
    faults = (Fault(chance.choice(steps), event, chance.choice(sizes)) for event, steps, sizes in scene.faults)
    starts = schedule.starts
    if scene.fail is not None:
        starts = tuple(replace(start, fail=scene.fail) for start in starts)
    options = (*dict((*schedule.options, *scene.options)).items(),)
    return replace(schedule, options=options, starts=starts, faults=(*schedule.faults, *faults))


def _start(chance: random.Random, kind: str) -> Start:
    trigger = chance.choice((Trigger.DEFAULT, Trigger.DEFAULT, Trigger.AVAILABLE_NOW, Trigger.ONCE))
    others = chance.choice(_OTHERS[kind]) if chance.random() < 0.15 else ()
    return Start(trigger, chance.random() < 0.6, chance.choice((1, 2, 4, MOST_BATCHES)), others)
