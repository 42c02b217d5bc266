"""What brokers answer to the source's driver, in place of `spark_eos.kafka.admin`; and the clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.base import retry
from spark_eos.base.topic_partition import PartitionOffsets, TopicPartition, flat, nested
from spark_eos.errors import TopicError
from spark_eos.kafka.admin.groups import ConsumerGroup
from spark_eos.kafka.admin.topics import Topic
from spark_eos.kafka.requests.offset_for_leader_epoch import UNKNOWN, EpochEnd
from spark_eos.ledger import own_topics
from spark_eos.source import bounds, diagnosis, range_reader, readable, reader, watch
from spark_eos.source.epochs import Leaders, Unanswered

from .cluster import Cluster, Log

CLUSTER_ID = "c"
#: For so long brokers that know no topic of a name are asked again.
MISSING_MS = 1_000


class Admin:
    """The requests of one query's driver."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._high: PartitionOffsets = {}

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Put it, and its clock, in the place of the real ones."""
        clock = SimpleNamespace(monotonic=lambda: self._cluster.now / 1000, sleep=self._sleep)
        patch.setattr(watch, "time", clock)
        patch.setattr(retry, "system", clock)
        patch.setattr(reader, "system", clock)
        patch.setattr(watch, "describe_topics", self.describe_topics)
        patch.setattr(watch, "topic_names", lambda *_: sorted(self._metadata("names")))
        patch.setattr(watch, "ends_and_epochs", self._ends_and_epochs)
        patch.setattr(watch, "begin_offsets", self._begin_offsets)
        leaders = Leaders(self._epoch_ends, self._begins, self._first_batch)
        for module in (watch, diagnosis):
            patch.setattr(module, "leaders_of", lambda *_: leaders)
        patch.setattr(diagnosis, "begin_offsets", self._begin_offsets)
        patch.setattr(diagnosis, "end_offsets", self._end_offsets)
        patch.setattr(own_topics, "own_topics", lambda *_: {})
        patch.setattr(bounds, "logger", SimpleNamespace(info=lambda *_: None))
        patch.setattr(ConsumerGroup, "active_members", lambda *_, **__: [])
        patch.setattr(ConsumerGroup, "committed", self._committed)
        patch.setattr(range_reader, "cluster_id", lambda _: CLUSTER_ID)
        patch.setattr(readable, "cluster_id", lambda _: CLUSTER_ID)
        patch.setattr(readable, "describe_topics", self.describe_topics)

    def _sleep(self, seconds: float) -> None:
        if seconds:
            self._cluster.point("sleep", round(seconds * 1000))

    def _metadata(self, what: str) -> dict[str, tuple[str, int]]:
        self._cluster.point(what)
        return self._cluster.metadata()

    def describe_topics(self, kafka: Any, names: Iterable[str], *_: Any, **__: Any) -> dict[str, Topic]:
        names = list(names)
        known = self._metadata("topics")
        kafka.cluster_id = CLUSTER_ID
        if not known.keys() >= set(names):
            self._cluster.point("topics once more", MISSING_MS)
            known |= {name: found for name, found in self._cluster.metadata().items() if name not in known}
        return {name: self._topic(name, *known[name]) for name in names if name in known}

    def _topic(self, name: str, id_: str, partitions: int) -> Topic:
        logs = (self._cluster.log(name, p) for p in range(partitions))
        lag = int(self._cluster.told_stale)
        epochs = {log.partition: max(0, log.epoch - lag) for log in logs if log is not None and log.topic_id == id_}
        return Topic(id_, partitions, internal=False, leader_epochs=epochs)

    def _log(self, topic: str, partition: int) -> Log:
        found = self._cluster.log(topic, partition)
        if found is None:
            raise TopicError("EOS_TOPIC_MISSING", f"There is no {topic}-{partition}.", hint="Create it.")
        return found

    def _end_offsets(self, kafka: Any, asked: Mapping[str, Iterable[int]], isolation: str, *_: Any) -> PartitionOffsets:
        self._cluster.point(f"ends {isolation}")
        found = {topic: {p: self._end(self._log(topic, p), isolation) for p in asked[topic]} for topic in asked}
        if isolation == "read_uncommitted":
            self._high = found
        return found

    def _committed(self, *_: Any) -> PartitionOffsets:
        """Another consumer has finished all but the last one of what is there."""
        ends = flat(self._high)
        return nested({place: max(self._log(*place).first, end - 1) for place, end in ends.items()})

    def _end(self, log: Log, isolation: str) -> int:
        end = log.end if isolation == "read_uncommitted" else self._cluster.stable(log)
        hidden = log.lags_by if self._cluster.now < log.lags_until else 0
        return max(log.first, min(end, log.end - hidden))

    def _ends_and_epochs(
        self, kafka: Any, asked: Mapping[str, Iterable[int]], isolation: str, *_: Any
    ) -> tuple[PartitionOffsets, PartitionOffsets]:
        ends = self._end_offsets(kafka, asked, isolation)
        return ends, {topic: {p: self._log(topic, p).epoch for p in ends[topic]} for topic in ends}

    def _begin_offsets(self, kafka: Any, asked: Mapping[str, Iterable[int]], *_: Any) -> PartitionOffsets:
        self._cluster.point("begins")
        return {topic: {p: self._log(topic, p).first for p in asked[topic]} for topic in asked}

    def _epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        self._cluster.point("epochs")
        return {place: self._log(*place).replica.answer(epoch) for place, epoch in epochs.items()}

    def _begins(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self._log(*place).first for place in places}

    def _first_batch(self, place: TopicPartition, offset: int) -> tuple[int, int]:
        self._cluster.point("first batch")
        log = self._log(*place)
        if self._cluster.now < log.lags_until:
            raise Unanswered("it lags behind")
        records = enumerate(log.replica.log)
        there = ((at, r[1]) for at, r in records if r is not None and at >= max(offset, log.first))
        return next(there, (log.end, UNKNOWN))
