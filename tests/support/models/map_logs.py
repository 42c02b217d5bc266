"""An offset map whose log is in memory, behind the requests by which it is read."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest

from spark_eos.kafka.admin.topics import Topic
from spark_eos.kafka.codes import OK
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger import log as ledger_log
from spark_eos.ledger.reader import Fetched
from spark_eos.pipelines.mirror import cleaner, offset_map
from spark_eos.pipelines.mirror.entries import MapEntry, partition_of, to_record
from spark_eos.pipelines.mirror.offset_map import Origin

CLUSTER = "cluster"
#: Of a cluster that nobody asks.
CLIENT = broker_client(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}))
ORIGIN = Origin("out", "out-id", "in", "id", (CLUSTER,))
#: So many records are in an answer.
_AT_ONCE = 5_000

Record = tuple[bytes, bytes | None]


class MapLog:
    """Its records, by partition and in order; offsets that the broker has removed are left out."""

    def __init__(self, partitions: int = 9) -> None:
        self.rows: list[list[tuple[int, bytes, bytes | None]]] = [[] for _ in range(partitions)]
        self.fetched: list[tuple[int, int]] = []

    def write(self, *entries: MapEntry) -> None:
        for entry in entries:
            self.put(partition_of(entry.source, len(self.rows)), to_record(entry))

    def delete(self, entry: MapEntry) -> None:
        self.put(partition_of(entry.source, len(self.rows)), (to_record(entry)[0], None))

    def put(self, partition: int, record: Record) -> None:
        rows = self.rows[partition]
        rows.append((rows[-1][0] + 1 if rows else 0, *record))

    def end(self, partition: int) -> int:
        return self.rows[partition][-1][0] + 1 if self.rows[partition] else 0

    def compact(self) -> None:
        """Only the newest of each key is left, and where nothing came after it."""
        for number, rows in enumerate(self.rows):
            newest = {key: at for at, key, _ in rows}
            self.rows[number] = [row for row in rows if newest[row[1]] == row[0]]

    def fetch(self, partition: int, offset: int) -> Fetched:
        self.fetched.append((partition, offset))
        rows = self.rows[partition]
        start = bisect.bisect_left(rows, (offset,))
        found = rows[start : start + _AT_ONCE]
        return Fetched(OK, found, found[-1][0] + 1 if found else self.end(partition))


class Made(Protocol):
    """Records that are made one by one."""

    count: int

    def record(self, at: int) -> Record:
        """The one at this offset."""


class MadeLog(MapLog):
    """One partition has so many records, which are made when they are read, and made anew at the next time."""

    def __init__(self, partition: int, made: Made) -> None:
        super().__init__()
        self.partition, self.made = partition, made

    def end(self, partition: int) -> int:
        return self.made.count if partition == self.partition else 0

    def fetch(self, partition: int, offset: int) -> Fetched:
        stop = min(self.made.count, offset + _AT_ONCE)
        return Fetched(OK, [(at, *self.made.record(at)) for at in range(offset, stop)], stop)


@contextmanager
def reading(log: MapLog, known: Iterable[Origin] = ()) -> Iterator[None]:
    """What is read of the map's topic is what the log has; ``known``: the origins that it would have beside."""
    counts = {"map": Topic("map-id", len(log.rows), internal=False)}

    def ends(*_: object) -> dict[str, dict[int, int]]:
        return {"map": {number: log.end(number) for number in range(len(log.rows))}}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_log, "begin_offsets", lambda *_: {"map": dict.fromkeys(range(len(log.rows)), 0)})
        for module in (ledger_log, offset_map):
            patch.setattr(module, "end_offsets", ends)
        patch.setattr(ledger_log.KafkaLog, "fetch", lambda _, partition, at, *__: log.fetch(partition, at))
        for module in (offset_map, cleaner):
            patch.setattr(module, "describe_topics", lambda *_, **__: counts)
        for module in (offset_map, cleaner):
            patch.setattr(module, "origins_from", lambda *_: list(known))
        yield
