"""What a look at an offset map of 30,000 entries takes of memory, as a program of its own.

``python -m tests.support.models.map_memory read`` (or ``clean``) prints what it has found, and by how many MiB the
process has grown.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from spark_eos.pipelines.mirror.cleaner import clean_map
from spark_eos.pipelines.mirror.entries import SourcePartition, key_of, partition_of, prefix_of
from spark_eos.pipelines.mirror.offset_map import OffsetMap
from tests.support.models.map_logs import CLUSTER, MAP, ORIGIN, MadeLog, with_map
from tests.support.models.memory_clusters import MemoryCluster, MemoryClusters

#: A partition of the map, and partitions of the source whose entries are there.
NUMBER = 5
SOURCES = [p for p in range(200) if partition_of(SourcePartition(CLUSTER, ORIGIN.source_id, p), 9) == NUMBER][:10]
#: Entries of each of these; each has a row, of which the offset in the target is twice that in the source.
EACH = 3_000


class Entries:
    """They are made when they are read."""

    count = EACH * len(SOURCES)

    def record(self, at: int) -> tuple[bytes, bytes]:
        first, number = divmod(at, len(SOURCES))
        key = prefix_of(SourcePartition(CLUSTER, ORIGIN.source_id, SOURCES[number]))
        value = b'{"topic":"in","end":%d,"target":"out","id":"out-id","runs":[[0,%d,1]]}' % (first + 1, first)
        return key_of(key, first), value


def read(target: MemoryCluster) -> int:
    """The sum of where one position is, in the target's partition, of each of the source's."""
    wanted = {("in", partition): [EACH - 7] for partition in SOURCES}
    map_ = OffsetMap.read(target, CLUSTER, wanted, MAP)
    return sum(map_.translate(*place, EACH - 7).offset for place in wanted)


def clean(target: MemoryCluster) -> int:
    """Tombstones, where nine tenths of the entries are of no use any more."""
    clusters = MemoryClusters()
    clusters[target.id] = target
    clusters[CLUSTER].make("in", 200).begins = [EACH * 9 // 10] * 200
    with clusters.installed():
        return clean_map(clusters[CLUSTER], target, MAP)


def _mib() -> float:
    """The largest size of this process so far. (That of `resource` may be the size of whoever has started it.)"""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


if __name__ == "__main__":
    before = _mib()
    found = {"read": read, "clean": clean}[sys.argv[1]](with_map(MadeLog(NUMBER, Entries()), ORIGIN))
    print(json.dumps({"found": found, "mib": _mib() - before}))
