"""The ranges that a micro-batch reads. Pure functions over ``{topic: {partition: offset}}``.

A partition is added to the offset log with the offset at which its reading begins, in a micro-batch that reads none of
its rows. It is read from the next micro-batch on. So every range begins at an offset in the log, and a replay begins
where the first attempt began. This applies to partitions and topics that are added later, and to those of a new query,
with the exception that `spark_eos.source.plan.next_batch` names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from spark_eos.base.topic_partition import OffsetRange, PartitionOffsets, TopicPartition
from spark_eos.errors import EosError
from spark_eos.source.losses import begins_late, data_loss, ends_early

#: Called with each loss: raises or collects it.
Report = Callable[[EosError], None]

#: Ranges share a task up to this many offsets, as a task costs as much as reading some ten thousand rows.
FEW = 512
#: If each core has a task all the same, up to `MANY_RANGES` ranges share one up to this many offsets.
MANY, MANY_RANGES = 16_384, 16


@dataclass(frozen=True)
class RangeTask(InputPartition):
    """The ranges of one task, read one after the other."""

    ranges: tuple[OffsetRange, ...]


def advance(start: PartitionOffsets, ends: PartitionOffsets, max_rows: int) -> PartitionOffsets:
    """Return the end of the micro-batch that begins at ``start``: at most ``max_rows`` offsets later, never past
    ``ends``.

    ``max_rows`` is divided in proportion to the backlog of each partition; one with a backlog gets at least one offset.
    A partition whose end is unknown or before its start does not advance.
    """
    shares = backlog = backlogs(start, ends)
    total = sum(backlog.values())
    if total > max_rows:
        shares = {partition: max(1, size * max_rows // total) for partition, size in backlog.items()}
        rounded_off = max(0, max_rows - sum(shares.values()))
        for partition in [partition for partition in backlog if shares[partition] < backlog[partition]][:rounded_off]:
            shares[partition] += 1
    result = {topic: dict(partitions) for topic, partitions in start.items()}
    for (topic, p), share in shares.items():
        result[topic][p] += share
    return result


def backlogs(start: PartitionOffsets, ends: PartitionOffsets) -> dict[TopicPartition, int]:
    """Return the backlog of each partition that has one, in offsets."""
    return {
        (topic, p): ends[topic][p] - at
        for topic, partitions in start.items()
        for p, at in partitions.items()
        if ends.get(topic, {}).get(p, at) > at
    }


def merge(one: PartitionOffsets, other: PartitionOffsets) -> PartitionOffsets:
    """Return the union of two sets of offsets without common partitions."""
    return {topic: {**one.get(topic, {}), **other.get(topic, {})} for topic in {**one, **other}}


def ranges(
    start: PartitionOffsets,
    end: PartitionOffsets,
    first_epochs: PartitionOffsets | None = None,
    last_epochs: PartitionOffsets | None = None,
    ids: Mapping[str, str] | None = None,
) -> list[OffsetRange]:
    """Return a range for each partition with offsets to read. A partition that is not in ``start`` is not read yet.
    ``first_epochs``, ``last_epochs``: the leader epochs of the records before starts and ends; ``ids``: of the topics.
    Unknown ones are missing."""

    def epochs(topic: str, p: int) -> dict[str, int]:
        last = (last_epochs or {}).get(topic, {}).get(p, -1)
        return {
            "first_epoch": (first_epochs or {}).get(topic, {}).get(p, -1),
            "last_epoch": last,
            "most_epoch": last,
        }

    return [
        OffsetRange(topic, p, start[topic][p], stop, (ids or {}).get(topic, ""), **epochs(topic, p))
        for topic, partitions in sorted(end.items())
        for p, stop in sorted(partitions.items())
        if start.get(topic, {}).get(p, stop) < stop
    ]


def from_the_log(reads: Iterable[OffsetRange], begin: PartitionOffsets, report: Report) -> list[OffsetRange]:
    """Return the ranges without offsets that the log no longer has; these are reported as lost."""
    kept = []
    for r in reads:
        first = begin[r.topic][r.partition]
        if first > r.start:
            report(data_loss(r.topic, r.partition, r.start, first, begins_late(first)))
            r = r.cut(min(first, r.end), r.end)
        kept.append(r)
    return [r for r in kept if r.start < r.end]


def up_to_the_end(reads: Iterable[OffsetRange], high_watermark: PartitionOffsets, report: Report) -> list[OffsetRange]:
    """Return the ranges without offsets beyond the end of the log; these are reported as lost."""
    kept = []
    for r in reads:
        last = high_watermark[r.topic][r.partition]
        if last < r.end:
            report(data_loss(r.topic, r.partition, r.end, last, ends_early(last)))
            r = r.cut(r.start, max(last, r.start))
        kept.append(r)
    return [r for r in kept if r.start < r.end]


def tasks(
    reads: list[OffsetRange], min_partitions: int | None, max_records: int | None, cores: int | None = None
) -> list[RangeTask]:
    """Return the tasks for these ranges: one for each range, but ranges with at most `FEW` offsets together share one.
    If the user sets ``min_partitions`` or ``max_records``, ranges are split instead of shared. ``cores``: of Spark, if
    they are known, and a replay may have its rows in other tasks: then up to `MANY_RANGES` ranges with at most `MANY`
    offsets share a task, too, as long as there is one for each core."""
    if min_partitions is not None or max_records is not None:
        return [RangeTask((part,)) for part in split(reads, min_partitions, max_records)]
    shared: list[list[OffsetRange]] = []
    room = FEW if cores is None else max(FEW, min(MANY, sum(r.size for r in reads) // cores))
    offsets = 0
    for r in reads:
        offsets += r.size
        if not shared or offsets > (room if len(shared[-1]) < MANY_RANGES else FEW):
            shared.append([])
            offsets = r.size
        shared[-1].append(r)
    return [RangeTask(tuple(some)) for some in shared]


def split(reads: list[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Return the ranges split into parts, for more tasks than partitions.

    No part has more than ``max_records`` offsets. If there are enough offsets, there are about ``min_partitions``
    parts, divided in proportion to the size of the ranges, as in the built-in source.
    """
    if max_records is not None:
        reads = [part for r in reads for part in _parts(r, -(-r.size // max_records))]
    if min_partitions is None or len(reads) >= min_partitions:
        return reads
    total = sum(r.size for r in reads)
    whole = {r for r in reads if _share(r, total, min_partitions) <= 1}
    divided = total - sum(r.size for r in whole)
    left = max(1, min_partitions - len(whole))
    return [part for r in reads for part in ([r] if r in whole else _parts(r, max(1, _share(r, divided, left))))]


def _share(r: OffsetRange, total: int, parts: int) -> int:
    return (2 * r.size * parts + total) // (2 * total)  # rounded half up


def _parts(r: OffsetRange, count: int) -> list[OffsetRange]:
    count = min(count, r.size)
    cuts = [r.start + r.size * i // count for i in range(count + 1)]
    return [r.cut(start, end) for start, end in itertools.pairwise(cuts)]
