"""Deletes entries of the offset map that nobody needs any more, as the source's log now begins after them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from confluent_kafka import Producer

from spark_eos.errors import EosError, KafkaError
from spark_eos.kafka.admin.topics import begin_offsets, cluster_id, describe_topics, topic_partitions
from spark_eos.kafka.config.librdkafka import librdkafka_config
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.log import logger
from spark_eos.mirror.entries import MapEntry, partition_of, to_record
from spark_eos.mirror.map_topic import OffsetMap

#: How often a mirror looks, from its start on.
EVERY_S = 6 * 3600.0

_WRITE_S = 60.0


def trim(source: KafkaProperties, target: KafkaProperties, map_topic: str) -> int:
    """Delete the entries of ranges that end where the source's log starts, or before; their number.

    The newest entry of each partition stays: it says how far the mirror is. So do those of topics that are gone. May be
    repeated, and interrupted. Raises TopicError, ConnectionFailed, KafkaError.
    """
    passed = list(_passed(source, OffsetMap.read(target, cluster_id(source), map_topic)))
    if passed:
        _delete(target, map_topic, passed)
    return len(passed)


def _passed(source: KafkaProperties, map_: OffsetMap) -> Iterator[MapEntry]:
    there = describe_topics(source, map_.topics(), missing_ok=True)
    known = {topic.id: (name, topic.partitions) for name, topic in there.items()}
    places = {
        (known[of.topic_id][0], of.partition): translation
        for of, translation in map_.translations.items()
        if of.topic_id in known and of.partition < known[of.topic_id][1]
    }
    asked: dict[str, list[int]] = {}
    for name, partition in places:
        asked.setdefault(name, []).append(partition)
    begins = begin_offsets(source, asked) if asked else {}
    for (name, partition), translation in places.items():
        yield from (entry for entry in translation.entries[:-1] if entry.end <= begins[name][partition])


def _delete(target: KafkaProperties, map_topic: str, entries: Iterable[MapEntry]) -> None:
    """Returns when the brokers have the tombstones. Raises KafkaError (EOS_MIRROR_MAP_NOT_TRIMMED)."""
    partitions = topic_partitions(target, [map_topic])[map_topic]
    own = {"enable.idempotence": True, "queue.buffering.max.messages": 0}
    producer, refused = Producer(librdkafka_config(target, "producer", own)), set[str]()
    for entry in entries:
        producer.produce(
            map_topic,
            None,
            to_record(entry)[0],
            partition=partition_of(entry.source, partitions),
            on_delivery=lambda error, _: refused.add(str(error)) if error is not None else None,
        )
    if producer.flush(_WRITE_S) or refused:
        raise KafkaError(
            "EOS_MIRROR_MAP_NOT_TRIMMED",
            f"Old entries could not be taken out of {map_topic}: {'; '.join(sorted(refused)) or 'no answer'}.",
            hint="The mirror goes on, and tries again later. Check that the target's cluster is healthy, and grant "
            "WRITE on that topic.",
            topic=map_topic,
        )


@dataclass
class Trimming:
    """Of one mirror, on the driver: `trim`, now and then. A failure is a warning: the map is right as it is."""

    source: KafkaProperties
    target: KafkaProperties
    map_topic: str
    _next: float = field(default=0.0)

    def now_and_then(self) -> None:
        """To be called often: does nothing until `EVERY_S` seconds after the last time. Never raises EosError."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S
        try:
            count = trim(self.source, self.target, self.map_topic)
        except EosError as error:
            logger.warning("the offset map %s was not trimmed: %s", self.map_topic, error)
        else:
            logger.info("the offset map %s was trimmed by %d entries", self.map_topic, count)
