"""The query of a schedule: its rows, and what its starts make of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.partitioners import CONSISTENT_RANDOM
from spark_eos.pipelines.copy.ranges import RANGES, CopiedFrom, joined
from spark_eos.pipelines.files.notes import AllNotes, Notes
from spark_eos.protocol.extra import Kind
from spark_eos.protocol.head import DIGEST_BITS, Digest

from .partition_log import Place

QUERY = "q"
TRANSACTION_MS = 60_000
TOPIC = "out"
OWN_TOPIC = "out-x"
SOURCE: Place = ("source", 0)
OUTPUTS = (TOPIC, OWN_TOPIC)
TOPIC_PARTITIONS = 2
NOTES: Place = ("notes", 0)


@dataclass(frozen=True)
class Library:
    """A version of the library, by what it does with new micro-batches and new queries."""

    digest_by: Digest = Digest.ROWS
    partitioner: str = CONSISTENT_RANDOM


FIRST = Library()
LATER = Library(Digest.CHUNKS, "murmur2_random")


class Deal(Enum):
    """How a deterministic plan deals rows to tasks."""

    TURNS = "in turn"
    BACKWARDS = "in turn, from the last task on"
    RUNS = "in runs"


@dataclass(frozen=True)
class Clocks:
    """By how many milliseconds each one's clock is ahead."""

    driver: int = 0
    tasks: int = 0
    brokers: int = 0


@dataclass(frozen=True)
class Plan:
    """The query: rows of each micro-batch; tasks, version of the library, the group that gets the offsets, and how rows
    are dealt to tasks, by the number of the start, in turn.

    ``lingering``: attempts that nobody waits for any more live on. ``idle_ms``: for how long there is nothing to do
    after each micro-batch. ``keeps``: an application's processes are used again, with what they have in memory.
    ``clocks`` are those of all starts.
    ``two_phase``: by the number of the start, whether its transactions never expire. ``transaction_version`` is that of
    the cluster at first. ``notes``: each micro-batch has one.
    ``copy``: tasks are given ranges of offsets, and read the rows of these; there are no notes then.
    ``id`` is the query's, and ``topic`` where its rows go, or, by the number of the start, ``topics``.
    ``sets_begin``: whoever reads that the ledger knows nothing of the query sets ``ledger.begin``, and leaves it set.
    ``runs``: it is a batch write of one micro-batch, without a checkpoint, that ends so many times; 0: it is a stream.
    """

    rows: tuple[int, ...]
    tasks: tuple[int, ...]
    lingering: bool = False
    libraries: tuple[Library, ...] = (Library(),)
    groups: tuple[str | None, ...] = ("group",)
    deals: tuple[Deal, ...] = (Deal.TURNS,)
    idle_ms: int = 0
    timeout_ms: int = TRANSACTION_MS
    keeps: bool = False
    clocks: Clocks = Clocks()
    two_phase: tuple[bool, ...] = (False,)
    transaction_version: int = 2
    runs: int = 0
    notes: bool = False
    copy: bool = False
    id: str = QUERY
    topic: str = TOPIC
    topics: tuple[str, ...] = ()
    sets_begin: bool = False

    @property
    def outputs(self) -> frozenset[str]:
        """Wherever its rows may be."""
        return frozenset((self.topic, *self.topics))

    def kind_of(self, batch: int) -> Kind | None:
        """The kind of the extra that a micro-batch's decision has."""
        if self.copy:
            return RANGES
        return notes_of(batch, self.rows[batch]) if self.notes else None

    def topic_of(self, number: int) -> str:
        return self.topics[number % len(self.topics)] if self.topics else self.topic


def place_of(row: int, partitioner: str, topic: str = TOPIC) -> Place:
    return topic, (row // 2 + (partitioner == CONSISTENT_RANDOM)) % TOPIC_PARTITIONS


def notes_of(batch: int, rows: int) -> Notes:
    """What a micro-batch of so many rows notes."""
    return Notes(*NOTES, ((b"%d" % batch, b"%d" % rows),))


def noted_after(batch: int, rows: tuple[int, ...]) -> AllNotes:
    """What the decision on a micro-batch says of the notes so far; ``rows``: of each micro-batch."""
    return AllNotes(*NOTES).with_more([note for n in range(batch + 1) for note in notes_of(n, rows[n]).notes])


def copied_of(rows: list[int]) -> CopiedFrom:
    """The same rows as ranges of the source's offsets."""
    return CopiedFrom("cluster", (("in", "id"),), None, joined(OffsetRange("in", 0, row, row + 1) for row in rows))


def rows_in(ranges: Iterable[OffsetRange]) -> list[int]:
    """What a task reads."""
    return [row for r in ranges for row in range(r.start, r.end)]


def rows_of(start: int, end: int, tasks: int, partition: int, deal: Deal) -> list[int]:
    """What a deterministic plan gives to one of so many tasks."""
    if deal is Deal.RUNS:
        return [row for row in range(start, end) if (row - start) * tasks // (end - start) == partition]
    if deal is Deal.BACKWARDS:
        partition = tasks - 1 - partition
    return [row for row in range(start, end) if row % tasks == partition]


_FACTORS = {
    Digest.ROWS: 0x94D049BB133111EB,
    Digest.CHUNKS: 0xBF58476D1CE4E5B9,
    Digest.BATCHES: 0xD6E8FEB86659FD93,
}


def digest(rows: list[int], by: Digest, topic: str) -> int:
    factor = _FACTORS[by] + 2 * OUTPUTS.index(topic)
    return sum(pow(row + 1, 3) * factor for row in rows) % (1 << DIGEST_BITS)
