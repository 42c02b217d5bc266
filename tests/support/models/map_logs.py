"""An offset map whose log is in memory."""

from __future__ import annotations

import json
from typing import Protocol

from spark_eos.pipelines.mirror.entries import MapEntry, partition_of, to_record
from spark_eos.pipelines.mirror.offset_map import METADATA, Origin
from tests.support.models.memory_clusters import MemoryCluster, MemoryTopic, Row, id_of

CLUSTER = "cluster"
MAP = "map"
ORIGIN = Origin("out", id_of("out"), "in", id_of("in"), (CLUSTER,))


class MapLog(MemoryTopic):
    """The map's topic."""

    def __init__(self, partitions: int = 9) -> None:
        super().__init__(id_of(MAP), partitions, **{"cleanup.policy": "compact"})

    def write(self, *entries: MapEntry | Origin) -> None:
        for entry in entries:
            if isinstance(entry, Origin):
                key = {"origin": entry.target_id, "source": entry.source_id}
                value = {"target": entry.target, "source": entry.source, "chain": entry.chain}
                self.put(METADATA, (json.dumps(key).encode(), json.dumps(value).encode()))
            else:
                self.put(partition_of(entry.source, len(self.rows)), to_record(entry))

    def delete(self, entry: MapEntry) -> None:
        self.put(partition_of(entry.source, len(self.rows)), (to_record(entry)[0], None))


class Made(Protocol):
    """Records that are made one by one."""

    count: int

    def record(self, at: int) -> tuple[bytes, bytes]:
        """The one at this offset."""


class MadeLog(MapLog):
    """One partition has so many records, which are made when they are read, and made anew at the next time; it keeps
    nothing of what is written to it."""

    def __init__(self, partition: int, made: Made) -> None:
        super().__init__()
        self.partition, self.made = partition, made
        self.ends[partition] = made.count

    def put(self, partition: int, record: tuple[bytes, bytes | None], at: int | None = None) -> None:
        if partition != self.partition:
            super().put(partition, record, at)

    def read(self, partition: int, offset: int, most: int) -> list[Row]:
        if partition != self.partition:
            return super().read(partition, offset, most)
        stop = min(self.made.count, offset + most)
        return [(at, *self.made.record(at)) for at in range(offset, stop)]


def with_map(log: MapLog, *known: Origin, cluster: str = "target") -> MemoryCluster:
    """A client of a cluster that has this offset map; ``known``: origins that are written to it."""
    client = MemoryCluster(cluster)
    client.topics[MAP] = log
    log.write(*known)
    return client
