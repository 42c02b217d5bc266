"""A kill at every named point of the protocol, of copies with a schema registry that is not the same at the restart.

It has learned an id that was unknown, is away, or was made anew, and in half of the cases all that was decided is lost
and written again: each record is a row or a dead letter, once, as it was decided. ``make test`` runs a seeded share.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.chaos.test_kills import EVERY, share, struck
from tests.support.kills.registry_scene import CHANGES, SCHEMAS, VERSIONS, RegistryScene
from tests.support.kills.scene import PARTITIONS
from tests.support.runs.case_cover import in_turn
from tests.support.servers.fake_registry import FakeRegistry, fake_registry

#: Point and variant, what becomes of the registry, and how much of what is decided is lost: in turn.
CASES = [
    (*case, change, PARTITIONS * ((number + place) % 2))
    for number, case in enumerate(EVERY)
    for place, change in enumerate(CHANGES)
]


def by_seed() -> tuple[str, str, str, int]:
    """One of the cases, by the seed: while tasks write or while the driver decides."""
    chance = random.Random(os.environ.get("SPARK_EOS_SEED", "registry"))
    case = chance.choice([case for case in share() if case[0].startswith(("open.", "prepare.", "commit."))])
    return (*case, chance.choice(CHANGES), chance.choice([0, PARTITIONS]))


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """It knows one of the ids in the records."""
    with fake_registry(SCHEMAS, VERSIONS) as running:
        yield running


@in_turn("a registry")
@pytest.mark.parametrize(("point", "variant", "change", "lost"), [by_seed()])
def test_a_kill_and_another_registry_lose_and_double_nothing(
    point, variant, change, lost, registry, view, topic, spark, tmp_path
):
    """The share of the set for every day."""
    struck(RegistryScene(view, topic, tmp_path, registry, change, lost), spark, point, variant)


@pytest.mark.chaos
@pytest.mark.parametrize(("point", "variant", "change", "lost"), CASES)
def test_a_kill_at_every_point_and_another_registry(
    point, variant, change, lost, registry, view, topic, spark, tmp_path
):
    """The whole set."""
    struck(RegistryScene(view, topic, tmp_path, registry, change, lost), spark, point, variant)
