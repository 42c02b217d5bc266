"""What a look at an offset map of 200,000 entries takes of memory, as a program of its own.

``python -m tests.support.models.map_memory read`` (or ``clean``) prints what it has found, and by how many MiB the
process has grown.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_eos.pipelines.mirror import cleaner, offset_map
from spark_eos.pipelines.mirror.entries import SourcePartition, partition_of
from spark_eos.pipelines.mirror.offset_map import OffsetMap
from tests.support.models.map_logs import CLIENT, CLUSTER, ORIGIN, MadeLog, Record, reading

#: A partition of the map, and partitions of the source whose entries are there.
NUMBER = 5
SOURCES = [p for p in range(200) if partition_of(SourcePartition(CLUSTER, "id", p), 9) == NUMBER][:10]
#: Entries of each of these; each has a row, of which the offset in the target is twice that in the source.
EACH = 20_000


class Entries:
    """They are made when they are read."""

    count = EACH * len(SOURCES)

    def record(self, at: int) -> Record:
        first, number = divmod(at, len(SOURCES))
        key = b'{"cluster":"cluster","topic":"id","partition":%d,"first":%d}' % (SOURCES[number], first)
        return key, b'{"topic":"in","end":%d,"target":"out","id":"out-id","runs":[[0,%d,1]]}' % (first + 1, first)


def read() -> int:
    """The sum of where one position is, in the target's partition, of each of the source's."""
    wanted = {("in", partition): [EACH - 7] for partition in SOURCES}
    map_ = OffsetMap.read(CLIENT, CLUSTER, wanted, "map")
    return sum(map_.translate(*place, EACH - 7).offset for place in wanted)


def clean() -> int:
    """Tombstones, where nine tenths of the entries are of no use any more."""
    begins = {"in": dict.fromkeys(SOURCES, EACH * 9 // 10)}
    with pytest.MonkeyPatch.context() as patch:
        topics = {"in": SimpleNamespace(id="id", partitions=200), "map": SimpleNamespace(id="map-id", partitions=9)}
        patch.setattr(cleaner, "cluster_id", lambda _: CLUSTER)
        patch.setattr(cleaner, "describe_topics", lambda *_, **__: topics)
        patch.setattr(cleaner, "begin_offsets", lambda *_: begins)
        patch.setattr(offset_map, "Producer", lambda _: SimpleNamespace(produce=lambda *_, **__: 0, flush=lambda _: 0))
        return cleaner.clean_map(CLIENT, CLIENT, "map")


def _mib() -> float:
    """The largest size of this process so far. (That of `resource` may be the size of whoever has started it.)"""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


if __name__ == "__main__":
    before = _mib()
    with reading(MadeLog(NUMBER, Entries()), [ORIGIN]):
        found = {"read": read, "clean": clean}[sys.argv[1]]()
    print(json.dumps({"found": found, "mib": _mib() - before}))
