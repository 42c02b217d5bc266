"""Schema ids in one column of one range of offsets that the registry does not know.

A registry may learn an id at any time. All values of the range must be decoded by one answer, also when the range is
read again. So the first answer counts for the whole range, and a decision on the range notes its unknown ids. Known ids
need no note, as an id never changes its schema.

Any producer can write any number of unknown ids, but no known one without the right to register it. So the note has
runs, each from the first to the last of unknown ids between which no known one was read: there are at most as many runs
as known ids, and one. And the registry is asked for the first `MOST_ASKED` of a range alone; behind them, only ids of
the reader's subject and ids that were read before count as known.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection

from spark_eos.errors import stop

#: Unknown ids of a range for which the registry is asked, some seconds' worth. Bytes that were not written with a
#: registry, and begin with 0 by chance, seem to have another id in each row.
MOST_ASKED = 1_000
#: Runs of unknown ids that a decision notes, counted for each range: they take 300 kB or so, of the megabyte that a
#: record has. A range has one for each known id at most, and one.
MOST_NOTED = 10_000
_TO = ".."
#: Orders ids by number, before GUIDs.
_Place = tuple[int, str]


def check_unknown(count: int) -> None:
    """Raise RegistryError where there are more runs of unknown ids than a decision can note."""
    if count > MOST_NOTED:
        raise stop("EOS_REGISTRY_NOT_FOUND.many_ranges", count=count, most=MOST_NOTED)


class UnknownIds:
    """The ids of one range that are unknown to the registry. ``noted``: the `names` that the decision on the range has
    noted; None for a range without a decision."""

    def __init__(self, noted: Collection[str] | None = None) -> None:
        self._noted = tuple(noted or ())
        runs = [(name.partition(_TO)[0], name.rpartition(_TO)[2]) for name in self._noted]
        self._noted_runs = sorted((_place(first), _place(last)) for first, last in runs)
        self._unknown: set[str] = set()
        self._known: set[str] = set()
        self._only: set[str] | None = None
        self.are_noted = noted is not None

    @property
    def names(self) -> tuple[str, ...]:
        """The unknown ids and GUIDs, as texts: one, or the first and the last one of a run, as in ``17..99``."""
        if self.are_noted:
            return self._noted
        return tuple(run[0] if len(run) == 1 else f"{run[0]}{_TO}{run[-1]}" for run in self._runs())

    @property
    def is_full(self) -> bool:
        """Tell whether the registry is asked for the ids of `ask_only` alone from now on."""
        return self._only is None and len(self._unknown) >= MOST_ASKED

    def ask_only(self, names: Collection[str]) -> None:
        """Count all ids as unknown from now on, except these and the ids that were known so far."""
        self._only = {*names, *self._known} - self._unknown

    def counts(self, name: str) -> bool:
        """Tell whether an id counts as unknown without asking the registry."""
        if self.are_noted:
            number = bisect(self._noted_runs, _place(name), key=lambda run: run[0])
            return number > 0 and _place(name) <= self._noted_runs[number - 1][1]
        if name in self._unknown:
            return True
        if self._only is None or name in self._only:
            return False
        self._unknown.add(name)
        if len(self._unknown) > 2 * (MOST_ASKED + len(self._only)):
            self._unknown = {end for run in self._runs() for end in (run[0], run[-1])}
        return True

    def note_known(self, name: str) -> None:
        """Note that values with this id were decoded."""
        self._known.add(name)

    def note_unknown(self, name: str, registry: str) -> None:
        """Note that the registry at this address does not know the id. Raises RegistryError (EOS_REGISTRY_CHANGED)
        where values with this id were decoded before."""
        if self.are_noted or name in self._known:
            raise stop("EOS_REGISTRY_CHANGED.forgotten", schema=name, registry=registry)
        self._unknown.add(name)
        if self._only is not None:
            self._only.discard(name)

    def _runs(self) -> list[list[str]]:
        """Return the unknown ids in order, cut at each id that may be known."""
        known = sorted(map(_place, self._known if self._only is None else self._only))
        runs: dict[int, list[str]] = {}
        for name in sorted(self._unknown, key=_place):
            runs.setdefault(bisect(known, _place(name)), []).append(name)
        return list(runs.values())


def _place(name: str) -> _Place:
    return len(name), name
