"""From where to where a micro-batch reads. Pure functions over ``{topic: {partition: offset}}``.

A partition enters the offset log at its first offset, in a micro-batch that reads none of its rows; it is read from the
next micro-batch on. So every range that is ever read begins at an offset that the log holds, and a replay begins where
the first try began. That goes for the partitions of a new query (micro-batch 0 only records where the query begins,
whatever ``startingOffsets`` says) and for partitions and topics that are added later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from spark_eos.errors import DataLossError
from spark_eos.source.offsets import Offsets


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """What one task reads: the offsets of one partition from ``start`` up to, not including, ``end``."""

    topic: str
    partition: int
    start: int
    end: int


def advance(start: Offsets, ends: Offsets, max_rows: int) -> Offsets:
    """Where the micro-batch that begins at ``start`` ends: at most ``max_rows`` offsets on, never past ``ends``.

    ``max_rows`` is shared out by what waits in each partition; one with something waiting gets at least one offset.
    A partition whose end lies before its start stays where it is.
    """
    waiting = {
        (topic, p): ends[topic][p] - at
        for topic, partitions in start.items()
        for p, at in partitions.items()
        if ends[topic][p] > at
    }
    total = sum(waiting.values())
    result = {topic: dict(partitions) for topic, partitions in start.items()}
    for (topic, p), size in waiting.items():
        share = size if total <= max_rows else max(1, size * max_rows // total)
        result[topic][p] += share
    return result


def merge(one: Offsets, other: Offsets) -> Offsets:
    """Both; no partition may be in both."""
    return {topic: {**one.get(topic, {}), **other.get(topic, {})} for topic in {**one, **other}}


def ranges(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """One for each partition with something to read. Partitions that ``start`` does not know are not read yet."""
    return [
        OffsetRange(topic, p, start[topic][p], stop)
        for topic, partitions in sorted(end.items())
        for p, stop in sorted(partitions.items())
        if start.get(topic, {}).get(p, stop) < stop
    ]


def check_partitions(start: Offsets, counts: dict[str, int]) -> None:
    """Raise DataLossError where a partition that is being read is no longer there or no longer subscribed to."""
    for topic, partitions in start.items():
        for p, at in partitions.items():
            if topic not in counts:
                raise data_loss(topic, p, at, None, "is not in 'subscribe' any more")
            if p >= counts[topic]:
                raise data_loss(topic, p, at, None, f"is gone; the topic has {counts[topic]} partitions now")


def check_begin(reads: Iterable[OffsetRange], begin: Offsets) -> None:
    """Raise DataLossError where the log no longer holds the first offset of a range."""
    for r in reads:
        found = begin[r.topic][r.partition]
        if found > r.start:
            raise data_loss(
                r.topic, r.partition, r.start, found, f"begins at {found} now (retention or deleted records)"
            )


def check_end(expected: Offsets, high_watermark: Offsets) -> None:
    """Raise DataLossError where a partition ends before an offset that has been read or planned."""
    for topic, partitions in expected.items():
        for p, at in partitions.items():
            found = high_watermark[topic][p]
            if found < at:
                raise data_loss(topic, p, at, found, f"ends at {found} (the topic was created anew or truncated)")


def data_loss(topic: str, partition: int, expected: int, found: int | None, what: str) -> DataLossError:
    """The error for offsets that the query needs and the cluster does not have. ``found``: the nearest there is."""
    return DataLossError(
        "EOS_SOURCE_DATA_LOSS",
        f"The query goes on at offset {expected} of {topic}-{partition}, but the partition {what}.",
        hint="Nothing was read or skipped. Restore the topic, or begin with a new checkpoint and 'startingOffsets'.",
        topic=topic,
        partition=partition,
        expected=expected,
        found=found,
    )
