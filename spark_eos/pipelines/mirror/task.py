"""Write a mirror's rows in a task and, in the same transaction, their offsets in source and target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_eos.base import failpoints
from spark_eos.base.topic_partition import OffsetRange, TopicPartition
from spark_eos.errors import EosError, stop
from spark_eos.pipelines.copy.task import RangeWriter, TaskRun, TopicRows, stats_of
from spark_eos.pipelines.mirror.entries import MapEntry, SourcePartition, partition_of, runs_of, split, to_record
from spark_eos.pipelines.mirror.plan import MirrorPlan
from spark_eos.source.copying import Copied
from spark_eos.spi import WriteStats, describe_topics


class MirrorRows(TopicRows):
    """The rows of a mirror. Each task writes its rows, then their entries in the offset map."""

    plan: MirrorPlan

    def stats(self, run: TaskRun) -> Iterator[WriteStats]:
        return MirrorWriter(self.plan, RangeWriter.of_task(self.plan, run)).written(run.ranges)


class MirrorWriter:
    """Writes the rows of a task's ranges, and their entries in the offset map."""

    def __init__(self, plan: MirrorPlan, copies: RangeWriter) -> None:
        self._mirror, self._copies = plan, copies
        self._copied: list[tuple[OffsetRange, Copied]] = []

    def written(self, ranges: Iterable[OffsetRange]) -> Iterator[WriteStats]:
        """Write every range, in order; then, when all rows are acknowledged, the map's entries. Yields the stats of
        each."""
        every = list(ranges)
        targets = self._copies.writer
        # A topic that is gone, and whose ranges are left out, may never have had a target.
        targets.look_up({self._mirror.target(r.topic) for r in every} | {self._mirror.targets.map}, missing_ok=True)
        for range_ in self._copies.readable.parts(every):
            copied = self._copies.copied(range_)
            self._copied.append((range_, copied))
            yield stats_of(range_, copied)
        targets.producer.flush()
        names = sorted({self._mirror.target(range_.topic) for range_, _ in self._copied})
        after = {name: topic.id for name, topic in describe_topics(targets.client, names).items()}
        changed = [name for name in names if after[name] != targets.topic_ids.get(name, after[name])]
        if changed:
            raise _changed(changed)
        entries = [part for entry in self._entries(after) for part in split(entry)]
        if entries:
            self._write(entries)
            failpoints.reach("prepare.mapped")
            yield WriteStats(0, 0, beside=len(entries))

    def _entries(self, ids: dict[str, str]) -> Iterator[MapEntry]:
        there: dict[TopicPartition, list[tuple[int, int]]] = {}
        for range_, copied in self._copied:
            target, number = self._mirror.target(range_.topic), range_.partition
            if (target, number) not in there:
                there[target, number] = list(self._copies.writer.offsets(target, number))
            spans = _take(there[target, number], copied.rows)
            source = SourcePartition(self._mirror.cluster, self._copies.readable.ids[range_.topic], number)
            runs = runs_of(copied.runs, spans)
            yield MapEntry(source, range_.topic, range_.start, range_.end, target, ids[target], runs)

    def _write(self, entries: list[MapEntry]) -> None:
        topic, writer = self._mirror.targets.map, self._copies.writer
        writer.look_up([topic])
        partitions = writer.partitions[topic]
        keys, values = zip(*(to_record(entry) for entry in entries), strict=True)
        numbers = [partition_of(entry.source, partitions) for entry in entries]
        writer.producer.write(
            topic,
            partitions,
            key=pa.array(keys, pa.binary()),
            value=pa.array(values, pa.binary()),
            partition=pa.array(numbers, pa.int32()),
        )


def _take(runs: list[tuple[int, int]], rows: int) -> list[tuple[int, int]]:
    """Remove the first ``rows`` rows from ``runs``, and return where they are."""
    taken: list[tuple[int, int]] = []
    while rows and runs:
        first, count = runs.pop(0)
        part = min(rows, count)
        taken.append((first, part))
        rows -= part
        if count > part:
            runs.insert(0, (first + part, count - part))
    return taken


def _changed(topics: list[str]) -> EosError:
    return stop("EOS_MIRROR_TARGET_RECREATED.meanwhile", topic=topics[0])
