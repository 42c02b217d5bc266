"""Micro-batches of a query to a table: which offsets they have, and whether a table has one already.

In tables of each kind, a commit holds the micro-batch's number and a digest of its offsets, and numbers have no gaps:
every micro-batch is committed, even without rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from spark_eos.base.topic_partition import OffsetRange, TopicPartition
from spark_eos.errors import EosError, stop

#: Bits of a digest: the versions of Delta's transactions are signed 64-bit numbers.
_DIGEST_BITS = 63
#: How many ranges a message shows.
_SHOWN = 4


@dataclass(frozen=True)
class RangeBatch:
    """A micro-batch and the ranges of offsets that it reads, in any order, and split among tasks in any way."""

    query: str
    number: int
    ranges: tuple[OffsetRange, ...]

    @cached_property
    def spans(self) -> dict[TopicPartition, tuple[str, int, int]]:
        """Partition → topic id, first offset, end offset."""
        spans: dict[TopicPartition, tuple[str, int, int]] = {}
        for r in sorted(self.ranges):
            _, start, end = spans.get((r.topic, r.partition), ("", r.start, r.end))
            spans[r.topic, r.partition] = r.topic_id, min(start, r.start), max(end, r.end)
        return spans

    @cached_property
    def digest(self) -> int:
        """A digest of the number, the topics' ids and the offsets, so that a replay has the same digest."""
        return digest_of(json.dumps([self.number, [[*place, *span] for place, span in self.spans.items()]]))

    @property
    def places(self) -> dict[str, tuple[int, int]]:
        """``topic/partition`` → first offset and end."""
        return {f"{topic}/{p}": (start, end) for (topic, p), (_, start, end) in self.spans.items()}

    def __str__(self) -> str:
        """Describe the first ranges, for messages."""
        return in_words(self.places)


def digest_of(text: str) -> int:
    """Return a digest that fits into the version of one of Delta's transactions."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> (64 - _DIGEST_BITS)


def in_words(places: Mapping[str, tuple[int, int]]) -> str:
    """Describe the first ranges, for messages. ``places``: ``topic/partition`` → first offset and end."""
    named = [f"{place} {start:,} to {end:,}" for place, (start, end) in places.items()]
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return "offsets " + ", ".join(named[:_SHOWN]) + more if named else "no new offsets"


@dataclass(frozen=True)
class Remembered:
    """A table's memory of a query; None for unknown fields. ``last``: the last micro-batch; ``digest``: of that one, if
    it was committed past the JVM. Of a Delta table also ``read``: the version on which that was committed; ``table``: a
    digest of the id of the table that the commit was meant for."""

    last: int | None
    digest: int | None
    read: int | None = None
    table: int | None = None


class BatchPresence(Enum):
    """Presence of a micro-batch in a table. ``UNCLEAR``: it has one with this number, and other offsets or none that
    are known."""

    NEW, THERE, UNCLEAR = "new", "there", "unclear"


def presence_of(path: str, memory: Remembered, batch: RangeBatch) -> BatchPresence:
    """Return whether the table at ``path`` has the micro-batch.

    Raises TableError where the table has a later one (EOS_TABLE_CHECKPOINT_BEHIND), or lacks an earlier one
    (EOS_OTHER_TABLE).
    """
    last, number = memory.last, batch.number
    if last is not None and last > number:
        raise stop("EOS_TABLE_CHECKPOINT_BEHIND", path=path, there=last, planned=number)
    if last == number:
        return BatchPresence.THERE if memory.digest == batch.digest else BatchPresence.UNCLEAR
    if number and last != number - 1:
        raise behind(path, number - 1, last)
    return BatchPresence.NEW


def has(path: str, memory: Remembered, batch: RangeBatch) -> bool:
    """Return whether the table has the micro-batch, with the same offsets. Raises TableError as `presence_of`, and for
    other offsets under its number (EOS_TABLE_TWO_QUERIES)."""
    presence = presence_of(path, memory, batch)
    if presence is BatchPresence.UNCLEAR:
        cause = f"micro-batch {batch.number} has other offsets in the table {path}, and {batch} in this run"
        raise stop("EOS_TABLE_TWO_QUERIES", cause=cause)
    return presence is BatchPresence.THERE


def check_start(path: str, last: int | None, *, finished: int | None, planned: int | None) -> None:
    """Check that the table and the checkpoint belong together. ``last``: the table's last micro-batch; ``finished``,
    ``planned``: the checkpoint's last ones. Raises TableError."""
    if finished is not None and (last is None or last < finished):
        raise behind(path, finished, last)
    if last is not None and last > (-1 if planned is None else planned):
        raise stop("EOS_TABLE_CHECKPOINT_BEHIND", path=path, there=last, planned=planned)


def landed(path: str, batch: int | None, table: str, query: str, *, by_spark: bool = False) -> EosError:
    """Return the error for a table with this id, whose last commit of the query was meant for another table.
    ``by_spark``: Spark has named its files."""
    files = "" if by_spark else f", and its files begin with 'eos-{query}-{batch}-'"
    return stop("EOS_OTHER_TABLE.landed", path=path, batch=batch, id=table, query=query, files=files)


def behind(path: str, finished: int, last: int | None) -> EosError:
    """Return the error for a table that lacks the query's micro-batches up to ``finished``."""
    there = "none of its micro-batches" if last is None else f"its micro-batches only up to {last}"
    return stop("EOS_OTHER_TABLE.behind", finished=finished, path=path, there=there)
