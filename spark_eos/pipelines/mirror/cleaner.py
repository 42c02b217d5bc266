"""Deletes the entries of the offset map that nobody needs any more, as the source's log now starts after them."""

from __future__ import annotations

import random
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from spark_eos.base.log import logger
from spark_eos.errors import EosError, stop
from spark_eos.pipelines.mirror.entries import (
    SourcePartition,
    extent,
    has_rows,
    key_of,
    newest_of_each,
    prefix_of,
    split_key,
)
from spark_eos.pipelines.mirror.offset_map import MapPartition, OffsetMapWriter, map_partitions, origins_from
from spark_eos.spi import BrokerClient, begin_offsets, cluster_id, describe_topics

#: How often a running mirror cleans the map, from its start on.
EVERY_S = 6 * 3600.0

_WRITE_S = 60.0
#: How many tombstones are written at once; no more are in memory.
_AT_ONCE = 10_000
#: How long a run that ends by itself waits for the cleaner: the next run removes the rest.
_FINISH_S = 60.0
_STOP_S = 5.0
_GONE = -1


def _never() -> bool:
    return False


def clean_map(source: BrokerClient, target: BrokerClient, map_topic: str, stopped: Callable[[], bool] = _never) -> int:
    """Delete the entries of ranges that end at or before the start of the source's log; their number.

    The newest entry of each partition stays: it says where the mirror is. If it has no rows, the newest entry with rows
    stays, too, with all behind it: it says where a reader continues that has read them all. Entries of topics that are
    gone stay. The partitions of the map are read one after the other, in random order; 24 bytes are kept for each entry
    that may be deleted. May be repeated, and ``stopped``. Raises TopicError, ConnectionFailed, KafkaError.
    """
    begins = _begins(source, target, map_topic)
    count = map_partitions(target, map_topic)
    writer = OffsetMapWriter(target, map_topic)
    written = 0
    for number in random.sample(range(count), count):
        for key in _passed(MapPartition(target, map_topic, number), begins, stopped):
            if stopped():
                break
            writer.write(number, key, None)
            written += 1
            if written % _AT_ONCE == 0:
                _flush(writer, map_topic)
        _flush(writer, map_topic)
    return written


def _flush(writer: OffsetMapWriter, map_topic: str) -> None:
    refused = writer.flush(_WRITE_S)
    if refused:
        raise stop(
            "EOS_MIRROR_MAP_NOT_WRITABLE",
            what="That old entries are no longer needed",
            topic=map_topic,
            refused=refused,
            then="The mirror continues, and tries again later",
        )


def _begins(source: BrokerClient, target: BrokerClient, map_topic: str) -> dict[bytes, int]:
    """Start offsets of the mirrored partitions that still exist, by the key prefix of their entries."""
    cluster = cluster_id(source)
    known = origins_from(target, map_topic, cluster)
    ids = {origin.source_id for origin in known}
    there = describe_topics(source, {origin.source for origin in known}, missing_ok=True)
    topics = {name: topic for name, topic in there.items() if topic.id in ids}
    begins = begin_offsets(source, {name: range(topic.partitions) for name, topic in topics.items()})
    return {
        prefix_of(SourcePartition(cluster, topics[name].id, partition)): offset
        for name, offsets in begins.items()
        for partition, offset in offsets.items()
    }


@dataclass
class _OldEntries:
    """The entries of one partition of the source that begin before ``begin``, the start of its log, in the order of the
    map's log, and the first offset of the ``last`` entry. ``goes_on``: an entry that begins later has rows."""

    begin: int
    last: int = _GONE
    goes_on: bool = False
    fields: array[int] = field(default_factory=lambda: array("q"))

    def add(self, first: int, value: bytes | None) -> None:
        if value is not None:
            self.last = max(self.last, first)
        if first < self.begin:
            entry = None if value is None else extent(first, value)
            self.fields.extend((first, _GONE, _GONE) if entry is None else (first, entry.end, entry.rows_end))
        elif value is not None:
            self.goes_on = self.goes_on or has_rows(value)

    def passed(self) -> np.ndarray:
        """Return the first offsets of the entries to delete."""
        entries = np.frombuffer(self.fields, np.int64, len(self.fields)).reshape(-1, 3)
        entries = entries[newest_of_each(entries[:, 0])]
        entries = entries[entries[:, 1] != _GONE]
        if self.last < self.begin:  # then it is one of these
            self.last = int(entries[-1, 0]) if len(entries) else _GONE
        passed = entries[(entries[:, 1] <= self.begin) & (entries[:, 0] != self.last)]
        filled = np.flatnonzero(passed[:, 2] != _GONE)
        if len(filled) and not self.goes_on and (entries[entries[:, 0] == self.last, 2] == _GONE).all():
            passed = passed[: filled[-1]]
        firsts: np.ndarray = passed[:, 0]
        return firsts


def _passed(part: MapPartition, begins: Mapping[bytes, int], stopped: Callable[[], bool]) -> Iterator[bytes]:
    """Yield the keys of the entries to delete. Ends early when it is stopped."""
    old: dict[bytes, _OldEntries] = {}
    for _, key, value in part:
        if stopped():
            return
        split = split_key(key)
        if split is not None and split[0] in begins:
            prefix, first = split
            if prefix not in old:
                old[prefix] = _OldEntries(begins[prefix])
            old[prefix].add(first, value)
    while old:
        prefix, entries = old.popitem()
        yield from (key_of(prefix, int(first)) for first in entries.passed())


class MapCleaner:
    """Cleans the map of one mirror, on the driver, from time to time, in the background, for as long as the query runs.

    A failure is a warning, and the cleaner may be stopped anywhere: the map is right with the old entries as without
    them, and each is deleted by a record of its own.
    """

    def __init__(self, source: BrokerClient, target: BrokerClient, map_topic: str) -> None:
        self._source, self._target, self._topic = source, target, map_topic
        self._next_s = 0.0
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def start_if_due(self) -> None:
        """Start if it is due. To be called often: does nothing until `EVERY_S` seconds after the last start. Neither
        raises nor waits."""
        busy = self._thread is not None and self._thread.is_alive()
        if busy or self._stopped.is_set() or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + EVERY_S
        self._thread = threading.Thread(target=self._work, name="eos map cleaner", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until the running deletion is done, for a minute at most: the process may end after this."""
        if self._thread is not None:
            self._thread.join(_FINISH_S)

    def stop(self) -> None:
        """Stop, as the query has ended: after a few seconds at most, nothing is deleted any more."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def _work(self) -> None:
        try:
            count = clean_map(self._source, self._target, self._topic, self._stopped.is_set)
        except EosError as error:
            logger.warning("the offset map %s was not cleaned: %s", self._topic, error)
        except Exception as error:  # a thread that dies would only print a stack that says nothing of the map
            logger.warning("the offset map %s was not cleaned: %s: %s", self._topic, type(error).__name__, error)
        else:
            left = ", and not to its end: the query has ended" if self._stopped.is_set() else ""
            logger.info("%d old entries of the offset map %s were deleted%s", count, self._topic, left)
