"""Fewer cases of a test with several parameters: each value of each parameter is in one of them at least."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence

import pytest

#: A parameter's name and value.
Value = tuple[str, Hashable]


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
