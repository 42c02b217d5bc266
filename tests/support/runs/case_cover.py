"""Fewer cases of a test: in which each value of each parameter is in one of them at least, or one of them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytest

#: A parameter's name and value.
Value = tuple[str, Hashable]
#: Suites of kills of what is built on the sink: the steps of its protocol are killed in all of them.
SUITES = ("into a table", "from a table", "the built-in source", "copies", "a registry", "dead letters", "a mirror")
#: Faults of the sink's protocol on a real broker, each of which the simulation has, too.
FAULTS = ("a second run", "a stalled opening", "a second attempt", "past the timeout", "two-phase commit")
#: How many of each `make test` has.
OF_A_SEED = {SUITES: 2, FAULTS: 1}


def covering(items: Sequence[pytest.Item], seed: int) -> list[pytest.Item]:
    """For each test function, cases in which all of its values occur; other ones for another seed. In their order."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {id(item) for name, own in cases.items() for item in _chosen(own, random.Random(f"{seed} {name}"))}
    return [item for item in items if id(item) in kept]


def _chosen(items: list[pytest.Item], chance: random.Random) -> list[pytest.Item]:
    """The case with the most values that are still missing, again and again."""
    left, chosen = chance.sample(items, len(items)), []
    missing = set[Value]().union(*map(values, items))
    while missing or not chosen:
        chosen.append(max(left, key=lambda item: len(values(item) & missing)))
        left.remove(chosen[-1])
        missing -= values(chosen[-1])
    return chosen


def values(item: pytest.Item) -> set[Value]:
    """The case's parameters. Values are told apart by their texts, as some are lists."""
    callspec = getattr(item, "callspec", None)
    return set() if callspec is None else {(name, repr(value)) for name, value in callspec.params.items()}


def one_for_every_day(
    test: str, cases: Sequence[Any], seed: str | None = os.environ.get("SPARK_EOS_SEED")
) -> list[Any]:
    """The cases for ``parametrize``. `make test` has one of them, by the test's name and the seed (SPARK_EOS_SEED), the
    same unless it is set; `make chaos` has the others. For long cases which run the same code but for a little."""
    chosen = random.Random(f"{seed} {test}").randrange(len(cases))
    return [case if n == chosen else _by_chaos(case) for n, case in enumerate(cases)]


def in_turn(suite: str, seed: str | None = os.environ.get("SPARK_EOS_SEED")) -> Callable[[Any], Any]:
    """A decorator for what a suite has for every day: `make test` has some of `SUITES` and of `FAULTS`, by the seed."""
    (suites,) = (suites for suites in OF_A_SEED if suite in suites)
    chosen = random.Random(f"{seed} suites").sample(suites, OF_A_SEED[suites])
    return (lambda test: test) if suite in chosen else pytest.mark.chaos


def _by_chaos(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.chaos)
