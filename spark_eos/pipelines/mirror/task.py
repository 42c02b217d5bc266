"""Write a mirror's rows in a task and, in the same transaction, their offsets in source and target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_eos.base import failpoints
from spark_eos.base.retry import retrying
from spark_eos.base.topic_partition import OffsetRange, TopicPartition
from spark_eos.errors import EosError, stop
from spark_eos.kafka.codes import OK
from spark_eos.kafka.producer.partition_queue import UNKNOWN_OFFSET
from spark_eos.kafka.records.batches import Damage, walk_batches
from spark_eos.kafka.requests.describe_producers import describe_producers, open_begins
from spark_eos.kafka.requests.fetch import fetch_once
from spark_eos.pipelines.copy.task import Parts, TaskRun, TopicRows, part_of
from spark_eos.pipelines.mirror.entries import MapEntry, SourcePartition, Spans, partition_of, runs_of, split, to_record
from spark_eos.pipelines.mirror.plan import MirrorPlan
from spark_eos.protocol.head import Pair
from spark_eos.source.copying import Copied
from spark_eos.spi import BrokerClient, Part, describe_topics

#: How long to look in the log for rows whose offsets no acknowledgement had.
_LOG_S = 30.0
_FETCH_BYTES = 1 << 20


class MirrorRows(TopicRows):
    """The rows of a mirror. Each task writes its rows, then their entries in the offset map."""

    plan: MirrorPlan

    def parts(self, run: TaskRun) -> Iterator[Part]:
        return MirrorParts(self.plan, Parts.of_task(self.plan, run)).of(run.ranges)


class MirrorParts:
    """The rows of a task's ranges, and their entries in the offset map."""

    def __init__(self, plan: MirrorPlan, copies: Parts) -> None:
        self._mirror, self._copies = plan, copies
        self._producer = copies.producer
        self._copied: list[tuple[OffsetRange, Copied]] = []

    def of(self, ranges: Iterable[OffsetRange]) -> Iterator[Part]:
        """Write every range, in order; then, when all rows are acknowledged, the map's entries, as a part without
        rows."""
        every = list(ranges)
        names = sorted({self._mirror.target(r.topic) for r in every})
        targets = self._copies.writer
        targets.look_up([*names, self._mirror.targets.map])
        for range_ in self._copies.readable.of(every):
            copied = self._copies.copied(range_)
            self._copied.append((range_, copied))
            yield part_of(range_, copied)
        self._producer.flush()
        client = targets.client
        after = {name: topic.id for name, topic in describe_topics(client, names).items()}
        changed = [name for name in names if after[name] != targets.topic_ids.get(name, after[name])]
        if changed:
            raise _changed(changed)
        entries = [part for entry in self._entries(after) for part in split(entry)]
        if entries:
            self._write(entries)
            failpoints.reach("prepare.mapped")
            yield Part(0, 0, beside=len(entries))

    def _entries(self, ids: dict[str, str]) -> Iterator[MapEntry]:
        there: dict[TopicPartition, list[tuple[int, int]]] = {}
        for range_, copied in self._copied:
            target, number = self._mirror.target(range_.topic), range_.partition
            if (target, number) not in there:
                there[target, number] = list(self._offsets_in(target, number))
            spans = _take(there[target, number], copied.rows)
            source = SourcePartition(self._mirror.cluster, self._copies.readable.ids[range_.topic], number)
            runs = runs_of(copied.runs, spans)
            yield MapEntry(source, range_.topic, range_.start, range_.end, target, ids[target], runs)

    def _offsets_in(self, topic: str, partition: int) -> Spans:
        """Return the offsets of all rows of this transaction in a partition: by the acknowledgements or, where one of
        them had no offset, by the log."""
        runs = self._producer.runs(topic, partition)
        if all(first != UNKNOWN_OFFSET for first, _ in runs):
            return runs
        rows = sum(count for _, count in runs)
        return rows_in_log(self._copies.writer.client, self._producer.identity(), topic, partition, rows)

    def _write(self, entries: list[MapEntry]) -> None:
        topic = self._mirror.targets.map
        partitions = self._copies.writer.partitions[topic]
        keys, values = zip(*(to_record(entry) for entry in entries), strict=True)
        numbers = [partition_of(entry.source, partitions) for entry in entries]
        self._producer.write(
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


def rows_in_log(client: BrokerClient, pair: Pair, topic: str, partition: int, rows: int) -> list[tuple[int, int]]:
    """Find all ``rows`` of a producer's open transaction in a partition, in order: (first offset, number) of each
    batch. All of them are acknowledged.

    Raises Unclear (EOS_TRANSACTION_NOT_FOUND) where the log does not have them.
    """
    runs: list[tuple[int, int]] = []
    at: int | None = None
    for _ in retrying(_LOG_S):
        if at is None:
            begins = open_begins(describe_producers(client, topic, partition))
            at = begins.get((pair.producer_id, pair.epoch))
        while at is not None and sum(count for _, count in runs) < rows:
            fetched = _fetch_batches(client, pair, (topic, partition), at)
            if fetched is None:
                break
            at, more = fetched
            runs += more
        if at is not None and sum(count for _, count in runs) >= rows:
            break
    if sum(count for _, count in runs) != rows:
        raise stop(
            "EOS_TRANSACTION_NOT_FOUND",
            transactional_id=pair.id,
            topic=topic,
            partition=partition,
            where=f"the log of {topic}-{partition} does not show its {rows} rows",
        )
    return runs


def _fetch_batches(
    client: BrokerClient, pair: Pair, partition: TopicPartition, at: int
) -> tuple[int, list[tuple[int, int]]] | None:
    """Return the offset to fetch next, and the producer's batches in this answer; None for an answer to discard and
    fetch again."""
    fetched = fetch_once(client, *partition, at, _FETCH_BYTES, isolation="read_uncommitted")
    if fetched is None or fetched[0].error != OK:
        return None
    after, runs = at, list[tuple[int, int]]()
    try:
        for batch in walk_batches(fetched[1], fetched[0].size, ()):
            own = (batch.producer_id, batch.epoch) == (pair.producer_id, pair.epoch) and not batch.control
            if own and batch.base >= at:
                runs.append((batch.base, batch.count))
            after = batch.last + 1
    except Damage:
        return None
    return (after, runs) if after > at else None
