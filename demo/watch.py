"""Follows an output while it is written: rows that consumers see, duplicates, and rows that they will never see."""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from demo.topics import Reader, TopicRow
from spark_eos.base.topic_partition import TopicPartition

_WAIT_MS = 100


@dataclass(frozen=True)
class Count:
    """Rows of an output partition, or of several.

    ``once``: visible, the first copy of each. ``again``: visible, further copies. ``rewritten``: of aborted
    transactions, never visible. ``waiting``: written, neither visible nor aborted yet.
    """

    once: int = 0
    again: int = 0
    rewritten: int = 0
    waiting: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.once + other.once,
            self.again + other.again,
            self.rewritten + other.rewritten,
            self.waiting + other.waiting,
        )

    @property
    def visible(self) -> int:
        return self.once + self.again


class Tally:
    """Counts rows by partition. ``rewritten`` lags behind while one of the two consumers does; it is never too high."""

    def __init__(self, places: Iterable[TopicPartition]) -> None:
        self._places = tuple(places)
        self._ids: set[int] = set()
        self._once: Counter[TopicPartition] = Counter()
        self._again: Counter[TopicPartition] = Counter()
        self._stable: Counter[TopicPartition] = Counter()
        self._passed: Counter[TopicPartition] = Counter()
        self._ahead: defaultdict[TopicPartition, deque[int]] = defaultdict(deque)

    def visible(self, row: TopicRow) -> None:
        """A row that a ``read_committed`` consumer has seen."""
        row_id = json.loads(row.value or b"{}").get("id")
        (self._again if row_id in self._ids else self._once)[row.topic, row.partition] += 1
        self._ids.add(row_id)

    def written(self, place: TopicPartition, offset: int) -> None:
        """A row that is in the log, visible or not; the offsets of a partition come in their order."""
        self._ahead[place].append(offset)
        self.stable(place, self._stable[place])

    def stable(self, place: TopicPartition, offset: int) -> None:
        """A ``read_committed`` consumer has been given everything before this offset that it ever will be."""
        self._stable[place] = offset
        ahead = self._ahead[place]
        while ahead and ahead[0] < offset:
            ahead.popleft()
            self._passed[place] += 1

    def counts(self) -> dict[TopicPartition, Count]:
        return {place: self._count(place) for place in self._places}

    def _count(self, place: TopicPartition) -> Count:
        once, again = self._once[place], self._again[place]
        return Count(once, again, max(0, self._passed[place] - once - again), len(self._ahead[place]))


class OutputWatch:
    """Two consumers of the output's topics, one ``read_committed``, one that is given everything, and their tally."""

    def __init__(self, bootstrap_servers: str, topics: Iterable[str]) -> None:
        topics = tuple(topics)
        self._committed = Reader(bootstrap_servers, topics, committed=True, wait_ms=_WAIT_MS)
        self._everything = Reader(bootstrap_servers, topics, committed=False, wait_ms=_WAIT_MS)
        self._tally = Tally(self._committed.reached)
        self.counts: Mapping[TopicPartition, Count] = self._tally.counts()

    def __enter__(self) -> OutputWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self._committed.close()
        self._everything.close()

    def poll(self) -> None:
        """Take what has come since the last time; does not wait."""
        for row in self._everything.new_rows():
            self._tally.written((row.topic, row.partition), row.offset)
        for row in self._committed.new_rows():
            self._tally.visible(row)
        for place, offset in self._committed.reached.items():
            self._tally.stable(place, offset)
        self.counts = self._tally.counts()

    @property
    def total(self) -> Count:
        return sum(self.counts.values(), Count())

    def end_offsets(self) -> dict[TopicPartition, int]:
        """Where each partition ends now, for ``read_committed`` consumers."""
        return self._committed.end_offsets()

    def has_all_before(self, end_offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether everything before these offsets has been counted."""
        readers = (self._committed, self._everything)
        return all(reader.reached[place] >= end for reader in readers for place, end in end_offsets.items())

    def visible_behind(self, end_offsets: Mapping[TopicPartition, int]) -> int:
        """How many rows at or behind these offsets have been counted, where nothing but rows is written."""
        return sum(max(0, self._committed.reached[place] - end) for place, end in end_offsets.items())
