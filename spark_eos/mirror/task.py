"""What a task of a mirror writes: whole batches, and then, in the same transaction, where these lie in the target."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_eos import failpoints
from spark_eos.caches import ttl_cache
from spark_eos.copy.copying import Copied
from spark_eos.copy.plan import CopyPlan
from spark_eos.copy.task import Parts, arrow_producer
from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.configs import topic_config
from spark_eos.kafka.admin.topics import describe_topics, topic_partitions
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.producer.partition_queue import UNKNOWN_OFFSET
from spark_eos.mirror.entries import MapEntry, SourcePartition, Stretches, cut, partition_of, runs_of, to_record
from spark_eos.mirror.landed import landed
from spark_eos.mirror.plan import MirrorPlan
from spark_eos.mirror.settings import retention_ms
from spark_eos.protocol.head import Digest
from spark_eos.sink.attempt import Part
from spark_eos.sink.job import SinkJob
from spark_eos.sink.producers import TaskProducer
from spark_eos.topic_partition import OffsetRange, TopicPartition

_SETTINGS_S = 10.0


class MirrorParts(Parts):
    """See Parts. The map's entries come last, when all rows are acknowledged."""

    def __init__(
        self, plan: CopyPlan, job: SinkJob, producer: TaskProducer, digest_by: Digest, ids: dict[str, str]
    ) -> None:
        super().__init__(plan, job, producer, digest_by, ids)
        assert isinstance(plan, MirrorPlan)
        self._mirror = plan
        self._copies: list[tuple[OffsetRange, Copied]] = []

    def of(self, ranges: Iterable[OffsetRange]) -> Iterator[Part]:
        """Every range, in order, and a part that has no rows, for the map."""
        every = list(ranges)
        kafka = self._mirror.sink.kafka
        names = sorted({self._mirror.target(r.topic) for r in every})
        before = {name: topic.id for name, topic in describe_topics(kafka, names).items()}
        yield from super().of(every)
        self._producer.flush()
        after = {name: topic.id for name, topic in describe_topics(kafka, names).items()}
        if before != after:
            raise _changed([name for name in names if before[name] != after[name]])
        entries = [part for entry in self._entries(after) for part in cut(entry)]
        if entries:
            self._write(entries)
            failpoints.reach("prepare.mapped")
            yield Part(0, 0, beside=len(entries))

    def _copied(self, range_: OffsetRange) -> Copied:
        copied = super()._copied(range_)
        _check_age(self._mirror.sink.kafka, self._mirror.target(range_.topic), copied.oldest_ms)
        self._copies.append((range_, copied))
        return copied

    def _entries(self, ids: dict[str, str]) -> Iterator[MapEntry]:
        there: dict[TopicPartition, list[tuple[int, int]]] = {}
        for range_, copied in self._copies:
            target, number = self._mirror.target(range_.topic), range_.partition
            if (target, number) not in there:
                there[target, number] = list(self._landed(target, number))
            mine = _take(there[target, number], copied.rows)
            source = SourcePartition(self._mirror.cluster, self._ids[range_.topic], number)
            runs = runs_of(copied.runs, mine)
            yield MapEntry(source, range_.topic, range_.start, range_.end, target, ids[target], runs)

    def _landed(self, topic: str, partition: int) -> Stretches:
        """Offsets of all rows that this transaction has in a partition of the target: as the brokers have said when
        they took them or, where one has not, as they lie in the log."""
        producer = arrow_producer(self._producer)
        runs = producer.runs(topic, partition)
        if all(first != UNKNOWN_OFFSET for first, _ in runs):
            return runs
        rows = sum(count for _, count in runs)
        return landed(self._mirror.sink.kafka, producer.identity(), topic, partition, rows)

    def _write(self, entries: list[MapEntry]) -> None:
        topic = self._mirror.targets.map
        partitions = topic_partitions(self._mirror.sink.kafka, [topic])[topic]
        keys, values = zip(*(to_record(entry) for entry in entries), strict=True)
        numbers = [partition_of(entry.source, partitions) for entry in entries]
        arrow_producer(self._producer).write(
            topic,
            partitions,
            key=pa.array(keys, pa.binary()),
            value=pa.array(values, pa.binary()),
            partition=pa.array(numbers, pa.int32()),
        )


def _take(runs: list[tuple[int, int]], rows: int) -> list[tuple[int, int]]:
    """The first so many rows, which are taken out."""
    taken: list[tuple[int, int]] = []
    while rows and runs:
        first, count = runs.pop(0)
        mine = min(rows, count)
        taken.append((first, mine))
        rows -= mine
        if count > mine:
            runs.insert(0, (first + mine, count - mine))
    return taken


def _check_age(kafka: KafkaProperties, topic: str, oldest_ms: int | None) -> None:
    """Retention does not wait for a commit: it may take rows that are older before anybody can see them."""
    kept_ms = _retention_ms(kafka, topic)
    now = int(time.time() * 1000)
    if kept_ms is not None and oldest_ms is not None and oldest_ms < now - kept_ms:
        raise stop("EOS_MIRROR_ROWS_EXPIRED", topic=topic, age_s=(now - oldest_ms) // 1000, retention_ms=kept_ms)


@ttl_cache(_SETTINGS_S, maxsize=256)
def _retention_ms(kafka: KafkaProperties, topic: str) -> int | None:
    return retention_ms(topic_config(kafka, topic))


def _changed(topics: list[str]) -> EosError:
    return stop("EOS_MIRROR_TARGET_RECREATED.meanwhile", topic=topics[0])
