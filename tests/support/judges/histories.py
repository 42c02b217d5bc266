"""Judges what readers have seen, poll by poll: a pure function over recorded histories.

A *reading* is what one plain consumer saw from where it began. When nothing is open any more, one more reading of each
isolation level, the *closing* one, says what is there for good; whatever an earlier reading of that level saw of the
same offsets has to agree with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: Topic and partition.
Place = tuple[str, int]

ABORTED, GONE, SKIPPED = "aborted read", "visible and then gone", "appeared behind a reader"
BACK, DOUBLED, HALVES, AHEAD = "went back", "doubled", "seen in halves", "offsets ahead of rows"
KINDS = (ABORTED, GONE, SKIPPED, BACK, DOUBLED, HALVES, AHEAD)
LEVELS = {True: "read_committed", False: "read_uncommitted"}


class Seen(NamedTuple):
    """One record as a poll brought it. ``value``: or what else tells it from all others of its topic."""

    topic: str
    partition: int
    offset: int
    value: bytes

    @property
    def place(self) -> Place:
        return self.topic, self.partition


@dataclass(frozen=True)
class Poll:
    """``rows`` in the order in which they came; ``ends``: where the client said that a partition ends, for this level.

    ``ended``: seconds of one monotonic clock, when the poll returned.
    """

    ended: float
    rows: Sequence[Seen] = ()
    ends: Mapping[Place, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """A consumer's polls, from the offsets ``starts`` on. Nothing was fetched for it before ``since``."""

    name: str
    committed: bool
    since: float
    starts: Mapping[Place, int]
    polls: Sequence[Poll]

    def __str__(self) -> str:
        return f"{self.name} ({LEVELS[self.committed]}, began at {self.since:.2f} s)"

    def rows(self) -> Iterator[Seen]:
        return (row for poll in self.polls for row in poll.rows)

    def by_place(self) -> dict[Place, dict[int, bytes]]:
        found: dict[Place, dict[int, bytes]] = {place: {} for place in self.starts}
        for row in self.rows():
            found[row.place][row.offset] = row.value
        return found

    def covered(self) -> dict[Place, int]:
        """For each place the offset up to which, exclusive, it has seen all that it was given to see."""
        reached = dict(self.starts)
        for poll in self.polls:
            for row in poll.rows:
                reached[row.place] = max(reached[row.place], row.offset + 1)
            for place, end in poll.ends.items():
                reached[place] = max(reached[place], end)
        return reached


@dataclass(frozen=True)
class GroupPoll:
    """A consumer group's offsets of the input's partitions, known at ``ended``."""

    ended: float
    offsets: Mapping[Place, int]


@dataclass(frozen=True)
class History:
    """All that was recorded of one query.

    ``closing``: by level, see above. ``inputs``: the place and offset of the input row that a value was made from.
    ``plans``: the end offsets of each micro-batch, exclusive. ``whole_parts``: whether a partition's part of a
    micro-batch is written by one task, so that it must become visible at once.
    """

    readings: Sequence[Reading]
    group: Sequence[GroupPoll]
    closing: Mapping[bool, Reading]
    inputs: Mapping[bytes, tuple[Place, int]]
    plans: Mapping[int, Mapping[Place, int]]
    whole_parts: bool = True


@dataclass(frozen=True)
class Anomaly:
    """``kind`` is one of KINDS."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def judge(history: History) -> list[Anomaly]:
    """Every anomaly of the history; none of a history that keeps the guarantee."""
    readings = [*history.readings, *history.closing.values()]
    batches = _Batches(history)
    return [
        *(anomaly for reading in readings for anomaly in _went_back(reading)),
        *_group_went_back(history.group),
        *(anomaly for reading in readings if reading.committed for anomaly in _doubled(reading)),
        *_differences(history),
        *(_halves(history, batches) if history.whole_parts else ()),
        *_ahead(history, batches),
        *_missing(history),
    ]


def _went_back(reading: Reading) -> Iterator[Anomaly]:
    """A consumer that was not told to seek is given ascending offsets."""
    at = dict(reading.starts)
    for row in reading.rows():
        if row.offset < at[row.place]:
            yield Anomaly(BACK, f"{reading} was at {at[row.place]} of {row.place}, and got {row.offset}")
        at[row.place] = row.offset + 1


def _group_went_back(polls: Sequence[GroupPoll]) -> Iterator[Anomaly]:
    at: dict[Place, int] = {}
    for poll in polls:
        for place, offset in poll.offsets.items():
            if offset < at.get(place, 0):
                yield Anomaly(BACK, f"the group was at {at[place]} of {place}, and then at {offset}")
        at |= poll.offsets


def _doubled(reading: Reading) -> Iterator[Anomaly]:
    """A value is at one offset of a topic: each input row has its own."""
    first: dict[tuple[str, bytes], Seen] = {}
    for row in reading.rows():
        known = first.setdefault((row.topic, row.value), row)
        if (known.place, known.offset) != (row.place, row.offset):
            yield Anomaly(DOUBLED, f"{reading}: {row.value!r} at {known.offset} of {known.place}, and as {row}")


def _differences(history: History) -> Iterator[Anomaly]:
    """What a reading saw, and the closing one of its level does not have; and what it should have seen."""
    final = {level: closing.by_place() for level, closing in history.closing.items()}
    offsets = {level: {place: sorted(rows) for place, rows in places.items()} for level, places in final.items()}
    first_seen = _first_seen(history.readings)
    for reading in history.readings:
        level, covered = reading.committed, reading.covered()
        for place, rows in reading.by_place().items():
            there = final[level][place]
            for offset, value in rows.items():
                if there.get(offset) != value:
                    aborted = level and final[False][place].get(offset) == value
                    yield Anomaly(ABORTED if aborted else GONE, f"{reading}: {value!r} at {offset} of {place}")
            known = offsets[level][place]
            for offset in known[bisect_left(known, reading.starts[place]) : bisect_left(known, covered[place])]:
                if offset not in rows:
                    before = first_seen[level].get((place, offset), reading.since) < reading.since
                    what = f"{reading} came to {covered[place]} of {place} without {there[offset]!r} at {offset}"
                    yield Anomaly(GONE if before else SKIPPED, what)


def _first_seen(readings: Sequence[Reading]) -> dict[bool, dict[tuple[Place, int], float]]:
    """When each record was first seen at each level."""
    found: dict[bool, dict[tuple[Place, int], float]] = {True: {}, False: {}}
    for reading in readings:
        seen = found[reading.committed]
        for poll in reading.polls:
            for row in poll.rows:
                at = (row.place, row.offset)
                seen[at] = min(seen.get(at, poll.ended), poll.ended)
    return found


class _Batches:
    """The micro-batch of each row, and where its rows lie in the output."""

    def __init__(self, history: History) -> None:
        self.numbers = sorted(history.plans)
        self._ends: dict[Place, list[int]] = defaultdict(list)
        for number in self.numbers:
            for place, end in history.plans[number].items():
                self._ends[place].append(end)
        self._plans = history.plans
        #: Place → micro-batch → first and last offset of its rows there, as they are for good. A second copy of a row,
        #: which is an anomaly by itself, does not count.
        self.parts: dict[Place, dict[int, tuple[int, int]]] = defaultdict(dict)
        known: set[tuple[str, bytes]] = set()
        for row in history.closing[True].rows():
            batch = self._of(history.inputs.get(row.value))
            if batch is not None and (row.topic, row.value) not in known:
                known.add((row.topic, row.value))
                low, high = self.parts[row.place].get(batch, (row.offset, row.offset))
                self.parts[row.place][batch] = min(low, row.offset), max(high, row.offset)

    def _of(self, origin: tuple[Place, int] | None) -> int | None:
        """The first micro-batch that ends behind the row; None if its own end, or its beginning, was not recorded."""
        if origin is None:
            return None
        place, offset = origin
        ends = self._ends[place]
        i = bisect_right(ends, offset)
        if i == len(ends):
            return None
        number = self.numbers[i + len(self.numbers) - len(ends)]  # a new partition is in the later plans only
        return number if number == 0 or number - 1 in self._plans else None

    def decided(self, offsets: Mapping[Place, int]) -> int | None:
        """The last micro-batch whose ends these offsets have reached."""
        reached = [
            number
            for number in self.numbers
            if all(offsets.get(place, 0) >= end for place, end in self._plans[number].items())
        ]
        return reached[-1] if reached else None


def _halves(history: History, batches: _Batches) -> Iterator[Anomaly]:
    """The stable end of a partition is never within its part of a micro-batch: that is one transaction."""
    for reading in history.readings:
        for place, end in _ends(reading) if reading.committed else ():
            for batch, (low, high) in batches.parts[place].items():
                if low < end <= high:
                    what = f"micro-batch {batch} has {low} to {high} of {place}, and {reading} found the end at {end}"
                    yield Anomaly(HALVES, what)


def _ends(reading: Reading) -> Iterator[tuple[Place, int]]:
    """Where the reading was told that a partition ends. Where it began may be anywhere, so that does not count."""
    for poll in reading.polls:
        yield from ((place, end) for place, end in poll.ends.items() if end > reading.starts[place])


#: How many micro-batches before the last one that the group's offsets tell of must be there. The last one's rows may
#: have been lost by a timeout. Those of the one before are in the log, and their markers may be under way while a
#: broker sleeps; before that, its transactional ids were used again, which a coordinator allows when all markers are
#: written.
_BEHIND = {False: 1, True: 2}


def _ahead(history: History, batches: _Batches) -> Iterator[Anomaly]:
    """Whoever reads the group's offsets and then the output must find the rows of the micro-batches before."""
    times = [poll.ended for poll in history.group]
    for reading in history.readings:
        i = bisect_right(times, reading.since)
        decided = batches.decided(history.group[i - 1].offsets) if i else None
        if decided is None:
            continue
        for place, end in _ends(reading):
            last = decided - _BEHIND[reading.committed]
            due = [high for batch, (_, high) in batches.parts[place].items() if batch <= last]
            if due and end <= max(due):
                what = f"the group was past micro-batch {decided}, and {reading} found the end of {place} at {end}"
                yield Anomaly(AHEAD, f"{what}: offset {max(due)} is of an earlier micro-batch")


def _missing(history: History) -> Iterator[Anomaly]:
    """In the end, every input row below the group's offsets is in each output topic."""
    closing = history.closing[True]
    topics: dict[str, set[bytes]] = {topic: set() for topic, _ in closing.starts}
    for row in closing.rows():
        topics[row.topic].add(row.value)
    at = history.group[-1].offsets if history.group else {}
    for value, (place, offset) in history.inputs.items():
        for topic, values in topics.items():
            if offset < at.get(place, 0) and value not in values:
                yield Anomaly(AHEAD, f"the group is at {at[place]} of {place}, and {value!r} is not in {topic}")
