"""What schedules break: found with a mistake that is put back, and told as small as it gets."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from .campaign import Failed
from .world import Violation

#: How many schedules are tried before a mistake counts as unseen.
SEEDS = 2_000

Patch = Callable[[pytest.MonkeyPatch], None]
#: Runs a schedule, or the one of a seed. Raises Violation.
Play = Callable[[Any], Any]


@dataclass(frozen=True)
class Mistake:
    """``breaks``: one of these is the first invariant to break. ``scenes``: where it shows, if it is rare. ``extras``:
    what schedules have that shows it. ``name``: that of a patch that has none. ``seed``: that of a schedule that has
    shown it lately, from which on they are tried; which ones do depends on the code."""

    put_back: Patch
    breaks: tuple[str, ...]
    scenes: Any = None
    extras: Any = None
    name: str = ""
    seed: int = 0

    def __str__(self) -> str:
        return self.name or self.put_back.__name__.strip("_")


def instead_of(owner: object, name: str, *also: Patch) -> Callable[[Callable[..., Any]], Patch]:
    """Make a mistake of a function: it stands in the place of the one that has this name, which is its first argument.
    ``also``: what is put back with it, as it would not show alone."""

    def mistake(wrong: Callable[..., Any]) -> Patch:
        @functools.wraps(wrong)
        def replaced(patch: pytest.MonkeyPatch) -> None:
            for other in also:
                other(patch)
            right = getattr(owner, name)

            def instead(*given: Any, **more: Any) -> Any:
                return wrong(right, *given, **more)

            patch.setattr(owner, name, instead)

        return replaced

    return mistake


@contextmanager
def put_back(mistake: Patch) -> Iterator[None]:
    """The mistake is in the code, within the block."""
    with pytest.MonkeyPatch.context() as patch:
        mistake(patch)
        yield


def see(mistake: Mistake, draw: Callable[[random.Random], Any], play: Play) -> None:
    """Fails unless some schedule breaks an invariant that stands against the mistake, and only with it."""
    seeds = range(mistake.seed, mistake.seed + SEEDS)
    assert first_broken(mistake.put_back, lambda seed: play(draw(random.Random(seed))), seeds) in mistake.breaks


def first_broken(mistake: Patch, play: Play, seeds: Sequence[int] = range(1_000)) -> str:
    """What the first schedule breaks, by its seed, with the mistake put back; without, it breaks nothing. Fails where
    none of them breaks anything."""
    for seed in seeds:
        with put_back(mistake):
            invariant = broken(play, seed)
        if invariant is not None:
            print(f"seed {seed}: {invariant}")
            play(seed)
            return invariant
    pytest.fail(f"no schedule of {len(seeds)} sees it")


def broken(play: Play, schedule: Any) -> str | None:
    """The name of the invariant that the schedule breaks."""
    try:
        play(schedule)
    except Violation as violation:
        return violation.invariant
    return None


def checked(schedule: Any, play: Play, smaller: Callable[[Any], Iterable[Any]], told: Callable[[Any], str]) -> Any:
    """The schedule, played. Raises Failed, with the smallest one on the way down that breaks the same invariant."""
    try:
        return play(schedule)
    except Violation as violation:
        while True:
            left = (one for one in smaller(schedule) if broken(play, one) == violation.invariant)
            found = next(left, None)
            if found is None:
                raise Failed(f"{violation}\n{told(schedule)}") from violation
            schedule = found
