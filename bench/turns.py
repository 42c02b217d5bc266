"""How often contenders run, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class BenchPlan:
    """``scale``: the share of the rows that a mode reads by default. ``repeats``: runs of each contender that count.

    ``warm_ups``: runs of each before these. ``without``: contenders that do not run, by their names.
    ``cases``: those that run, where there is a choice; all where none is named.
    """

    scale: float
    repeats: int
    warm_ups: int
    without: Sequence[str] = ()
    cases: Sequence[str] = ()

    def has(self, case: str) -> bool:
        """Whether the case runs."""
        return not self.cases or case in self.cases

    def turns(self, contenders: Sequence[T]) -> Iterator[tuple[int, T]]:
        """(turn, contender); a turn counts from 1 on. Each turn is in the reverse order of the one before.

        So a machine that gets slower or faster meanwhile affects all of them.
        """
        for turn in range(1 - self.warm_ups, self.repeats + 1):
            for contender in contenders if turn % 2 else reversed(contenders):
                yield turn, contender

    def rows(self, full: int, unit: int) -> int:
        """The share of ``full``, as the nearest multiple of ``unit`` that is not 0."""
        return multiple(full * self.scale, unit)


def multiple(number: float, unit: int) -> int:
    """The nearest multiple of ``unit`` that is not 0."""
    return max(1, round(number / unit)) * unit
