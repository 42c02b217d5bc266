"""Several queries in one ledger, on the same brokers: which ones, and that none touches what is another's."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from spark_eos.protocol.names import is_name_of

from .coordinator import Cluster
from .invariants import NEIGHBOURS
from .ledger import PREFIX
from .plan import OWN_TOPIC, QUERY, TOPIC, Deal, Plan
from .world import Violation

#: Ids that begin as that of the first query does: with its name and the dash that follows, or without.
OTHERS = ("q-x", "qq")

_MANY = 0.2
_ROWS = (0, 1, 3, 4)


def draw_others(chance: random.Random, first: Plan) -> tuple[Plan, ...]:
    """One, seldom two, beside this one. They share brokers and clocks, and what of a cluster's settings goes with
    these; and some share a topic."""
    return tuple(_beside(chance, first, id) for id in _ids(chance))


def _ids(chance: random.Random) -> Sequence[str]:
    return OTHERS if chance.random() < _MANY else (chance.choice(OTHERS),)


def _beside(chance: random.Random, first: Plan, id: str) -> Plan:
    return Plan(
        rows=tuple(chance.choice(_ROWS) for _ in range(chance.choice((1, 2, 2, 3)))),
        tasks=(2,),
        lingering=chance.random() < 0.5,
        libraries=first.libraries,
        groups=chance.choice(((f"group of {id}",), (None,), (None, f"group of {id}"))),
        deals=chance.choice(((Deal.TURNS,), (Deal.RUNS, Deal.BACKWARDS))),
        idle_ms=chance.choice((0, 0, 3_000)),
        timeout_ms=first.timeout_ms,
        keeps=first.keeps,
        clocks=first.clocks,
        two_phase=first.two_phase,
        transaction_version=first.transaction_version,
        copy=chance.random() < 0.25,
        id=id,
        topic=chance.choice((TOPIC, TOPIC, OWN_TOPIC)),
    )


_RUN = re.compile(r"(\S+)/r\d+")
_FIRST_RUN = re.compile(r"\br\d+\b")


def query_of(who: str) -> str | None:
    """The query of an actor, by its name; None for who is of none."""
    found = _RUN.search(who)
    if found is not None:
        return found[1]
    return QUERY if _FIRST_RUN.search(who) else None


def watch_neighbours(cluster: Cluster, ids: Sequence[str]) -> None:
    """From now on, nobody may initialise or end a transaction of another query, be it open or not."""

    def of_its_own(method: Callable[..., Any]) -> Callable[..., Any]:
        def checked(name: str, *rest: Any, **more: Any) -> Any:
            who = str(more.get("who", rest[-1] if rest else ""))
            actor = query_of(who)
            owner = next((id for id in ids if is_name_of(PREFIX, id, name)), None)
            if None not in (actor, owner) and actor != owner:
                raise Violation(NEIGHBOURS, f"{who} is at {name}, of {owner}")
            return method(name, *rest, **more)

        return checked

    for name in ("init", "end"):
        setattr(cluster, name, of_its_own(getattr(cluster, name)))
