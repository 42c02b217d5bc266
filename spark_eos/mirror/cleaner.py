"""Deletes entries of the offset map that nobody needs any more, as the source's log now begins after them."""

from __future__ import annotations

import random
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from confluent_kafka import Producer

from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.topics import begin_offsets, cluster_id, describe_topics, topic_partitions
from spark_eos.kafka.config.librdkafka import librdkafka_config
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.log import logger
from spark_eos.mirror.entries import SourcePartition, extent, has_rows, key_of, newest_of_each, place_of, split_key
from spark_eos.mirror.map_topic import MapPartition
from spark_eos.mirror.origins import origins_from

#: How often a mirror looks, from its start on.
EVERY_S = 6 * 3600.0

_WRITE_S = 60.0
#: So many are written at once, and no more are in memory.
_AT_ONCE = 10_000
#: A run that ends by itself waits for it, but not longer: what is left is for the next one.
_LAST_S = 60.0
_STOP_S = 5.0
_GONE = -1


def _never() -> bool:
    return False


def trim(source: KafkaProperties, target: KafkaProperties, map_topic: str, stopped: Callable[[], bool] = _never) -> int:
    """Delete the entries of ranges that end where the source's log starts, or before; their number.

    The newest entry of each partition stays: it says how far the mirror is. So does the newest one of these that has
    rows, with all behind it, if no later one has: it says where a reader goes on who has read them all. And so do those
    of topics that are gone. One partition of the map is read after the other, in any order, and of its entries only
    those that are deleted are kept, 24 bytes for each. May be repeated, and ``stopped``. Raises TopicError,
    ConnectionFailed, KafkaError.
    """
    begins = _begins(source, target, map_topic)
    count = topic_partitions(target, [map_topic])[map_topic]
    tombstones = _Tombstones(target, map_topic)
    for number in random.sample(range(count), count):
        for key in _passed(MapPartition(target, map_topic, number), begins, stopped):
            if stopped():
                break
            tombstones.write(number, key)
        tombstones.flush()
    return tombstones.written


def _begins(source: KafkaProperties, target: KafkaProperties, map_topic: str) -> dict[bytes, int]:
    """Where the logs of all mirrored partitions start that are still there, by how keys of their entries begin."""
    cluster = cluster_id(source)
    known = origins_from(target, map_topic, cluster)
    ids = {origin.source_id for origin in known}
    there = describe_topics(source, {origin.source for origin in known}, missing_ok=True)
    topics = {name: topic for name, topic in there.items() if topic.id in ids}
    begins = begin_offsets(source, {name: range(topic.partitions) for name, topic in topics.items()})
    return {
        place_of(SourcePartition(cluster, topics[name].id, partition)): offset
        for name, offsets in begins.items()
        for partition, offset in offsets.items()
    }


@dataclass
class _Old:
    """The entries of one partition that begin before ``begin``, in the order of the map's log, and the ``last`` one.
    ``goes_on``: one that begins later has rows."""

    begin: int
    last: int = _GONE
    goes_on: bool = False
    fields: array[int] = field(default_factory=lambda: array("q"))

    def add(self, first: int, value: bytes | None) -> None:
        if value is not None:
            self.last = max(self.last, first)
        if first < self.begin:
            found = None if value is None else extent(first, value)
            self.fields.extend((first, _GONE, _GONE) if found is None else (first, found.end, found.rows))
        elif value is not None:
            self.goes_on = self.goes_on or has_rows(value)

    def passed(self) -> np.ndarray:
        """The first offsets of those to delete."""
        found = np.frombuffer(self.fields, np.int64, len(self.fields)).reshape(-1, 3)
        found = found[newest_of_each(found[:, 0])]
        found = found[found[:, 1] != _GONE]
        if self.last < self.begin:  # so that it is among these
            self.last = int(found[-1, 0]) if len(found) else _GONE
        passed = found[(found[:, 1] <= self.begin) & (found[:, 0] != self.last)]
        filled = np.flatnonzero(passed[:, 2] != _GONE)
        if len(filled) and not self.goes_on and (found[found[:, 0] == self.last, 2] == _GONE).all():
            passed = passed[: filled[-1]]
        firsts: np.ndarray = passed[:, 0]
        return firsts


def _passed(part: MapPartition, begins: Mapping[bytes, int], stopped: Callable[[], bool]) -> Iterator[bytes]:
    """The keys of what is to be deleted. Ends early where it is stopped."""
    old: dict[bytes, _Old] = {}
    for _, key, value in part:
        if stopped():
            return
        split = split_key(key)
        if split is not None and split[0] in begins:
            place, first = split
            if place not in old:
                old[place] = _Old(begins[place])
            old[place].add(first, value)
    while old:
        place, entries = old.popitem()
        yield from (key_of(place, int(first)) for first in entries.passed())


class _Tombstones:
    """Deletes by keys. Raises KafkaError (EOS_MIRROR_MAP_NOT_WRITABLE)."""

    def __init__(self, target: KafkaProperties, map_topic: str) -> None:
        own = {"enable.idempotence": True, "queue.buffering.max.messages": 0}
        self._producer = Producer(librdkafka_config(target, "producer", own))
        self._topic = map_topic
        self._refused: set[str] = set()
        self.written = 0

    def write(self, number: int, key: bytes) -> None:
        """To this partition of the map."""
        self._producer.produce(self._topic, None, key, partition=number, on_delivery=self._told)
        self.written += 1
        if self.written % _AT_ONCE == 0:
            self.flush()

    def flush(self) -> None:
        """Returns when the brokers have all."""
        if self._producer.flush(_WRITE_S) or self._refused:
            raise stop(
                "EOS_MIRROR_MAP_NOT_WRITABLE.trim",
                topic=self._topic,
                refused="; ".join(sorted(self._refused)) or "no answer",
            )

    def _told(self, error: object, _: object) -> None:
        if error is not None:
            self._refused.add(str(error))


class Trimming:
    """Trims the map of one mirror, on the driver, now and then, in the background, for as long as the query runs.

    A failure is a warning, and it may be stopped anywhere: the map is right with the old entries as without them, and
    each of them goes by a record of its own.
    """

    def __init__(self, source: KafkaProperties, target: KafkaProperties, map_topic: str) -> None:
        self._source, self._target, self._topic = source, target, map_topic
        self._next = 0.0
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def now_and_then(self) -> None:
        """To be called often: does nothing until `EVERY_S` seconds after the last time. Neither raises nor waits."""
        busy = self._thread is not None and self._thread.is_alive()
        if busy or self._stopped.is_set() or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S
        self._thread = threading.Thread(target=self._work, name="eos trimming", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait, for a minute at the most, until what was begun is done: the process may end now."""
        if self._thread is not None:
            self._thread.join(_LAST_S)

    def stop(self) -> None:
        """The query has ended: nothing is deleted any more after some seconds at the most."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def _work(self) -> None:
        try:
            count = trim(self._source, self._target, self._topic, self._stopped.is_set)
        except EosError as error:
            logger.warning("the offset map %s was not trimmed: %s", self._topic, error)
        except Exception as error:  # a thread that dies would say so in a stack, and to nobody who knows what it means
            logger.warning("the offset map %s was not trimmed: %s: %s", self._topic, type(error).__name__, error)
        else:
            left = ", and not to its end: the query has ended" if self._stopped.is_set() else ""
            logger.info("the offset map %s was trimmed by %d entries%s", self._topic, count, left)
