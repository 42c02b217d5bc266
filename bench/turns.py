"""How often contenders run, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.result import ModeResult, Series, told

Say = Callable[[str], None]
#: Runs a contender once, and returns the metrics of that.
Contender = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class BenchPlan:
    """``scale``: the share of the rows that a mode reads by default. ``repeats``: runs of each contender that count.

    ``warm_ups``: runs of each before these. ``only``, ``without``: names of contenders that alone run, and that do not;
    ``cases``: the cases that run, where there is a choice. All run where none is named.
    """

    scale: float
    repeats: int
    warm_ups: int
    only: Sequence[str] = ()
    without: Sequence[str] = ()
    cases: Sequence[str] = ()

    def runs(self, contender: str) -> bool:
        """Whether the contender runs."""
        return contender not in self.without and (not self.only or contender in self.only)

    def has(self, case: str) -> bool:
        """Whether the case runs."""
        return not self.cases or case in self.cases

    def turns(self, contenders: Sequence[str]) -> Iterator[tuple[int, str]]:
        """(turn, contender); a turn counts from 1 on. Each turn is in the reverse order of the one before.

        So a machine that gets slower or faster meanwhile affects all of them.
        """
        for turn in range(1 - self.warm_ups, self.repeats + 1):
            for contender in contenders if turn % 2 else reversed(contenders):
                yield turn, contender

    def rows(self, full: int, unit: int) -> int:
        """The share of ``full``, as the nearest multiple of ``unit`` that is not 0."""
        return multiple(full * self.scale, unit)


def take_turns(plan: BenchPlan, result: ModeResult, case: str, contenders: Mapping[str, Contender], say: Say) -> None:
    """Run the contenders that are not left out, in turns, and add them to the result as a case."""
    series = {name: Series(name, case) for name in contenders if plan.runs(name)}
    for turn, name in plan.turns(list(series)):
        run = contenders[name]()
        say(f"{result.mode}: {name}, {case}, run {turn}: {told(result.compared, run[result.compared])}")
        if turn > 0:
            series[name].runs.append(dict(run))
    result.series += series.values()


def multiple(number: float, unit: int) -> int:
    """The nearest multiple of ``unit`` that is not 0."""
    return max(1, round(number / unit)) * unit
