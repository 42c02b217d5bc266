"""Copies of ranges from one topic of the cluster to another, each in a transaction with its like.

The source is as transactions have left it: committed and aborted batches beside each other, gaps, times of the broker.
What is in it was written by kafka-python's encoder, and what is expected of it is read by kafka-python's decoder.
"""

from __future__ import annotations

import base64
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kafka.record.memory_records import MemoryRecords

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.source.copying import copy_range
from spark_eos.source.fetching import Fetching
from tests.support.judges import record_batches

from .cluster import Cluster
from .partition import Batch, Partition
from .scenarios import Attempt, Scene
from .topic_ids import id_of

SOURCE = "in"
_FIRST_PRODUCER = 900
_POLL_S = 60.0


@dataclass(frozen=True)
class Copies:
    """Each partition of the source to that of the same number, in transactions that go up to these offsets."""

    cuts: dict[int, list[int]]
    cluster: Cluster

    def rows(self, scene: Scene, number: int) -> dict[int, list[bytes]]:
        """What the transaction of this number should have, by partition."""
        found = {
            r.partition: list(values(self.cluster.partitions[SOURCE, r.partition], r)) for r in self._ranges(number)
        }
        return {partition: rows for partition, rows in found.items() if rows}

    def write(self, scene: Scene, attempt: Attempt, producer: ArrowProducer) -> None:
        size = scene.chance.choice((1, 300, 1 << 20))
        kafka = KafkaProperties({**scene.kafka, "max.partition.fetch.bytes": str(size)})
        id_ = base64.urlsafe_b64encode(id_of(SOURCE).bytes).decode().rstrip("=")
        for range_ in self._ranges(attempt.number):
            range_ = replace(range_, topic_id=id_)  # as tasks have it
            fetching = Fetching(broker_client(kafka), poll_timeout_s=_POLL_S)
            copy_range(fetching, range_, (scene.topic, range_.partition), producer)
        producer.flush()

    def _ranges(self, number: int) -> Iterator[OffsetRange]:
        for partition, cuts in self.cuts.items():
            yield OffsetRange(SOURCE, partition, cuts[number], cuts[number + 1])


def fill(cluster: Cluster, chance: random.Random, transactions: int) -> Copies:
    """The source, and where the ranges begin and end: the first partition has rows for each transaction."""
    cuts = {}
    for number in range(cluster.topics[SOURCE]):
        log = cluster.partitions[SOURCE, number]
        _append(log, chance, number, rows=4 * transactions, producer=_FIRST_PRODUCER, gaps=False)
        for _ in range(chance.randrange(8)):
            _append(
                log,
                chance,
                number,
                rows=chance.choice((1, 2, 9)),
                producer=_FIRST_PRODUCER + chance.randrange(3),
                gaps=chance.random() < 0.3,
            )
            if chance.random() < 0.3 and len(log.open) > 1:
                producer = chance.choice([producer for producer in log.open if producer != _FIRST_PRODUCER])
                log.mark(producer, 0, commit=chance.random() < 0.5)
        for producer in list(log.open):
            log.mark(producer, 0, commit=producer == _FIRST_PRODUCER or chance.random() < 0.5)
        inner = sorted(chance.sample(range(1, 4 * transactions), transactions))
        cuts[number] = [*inner, chance.randrange(4 * transactions, log.end + 1)]
    return Copies(cuts, cluster)


def _append(log: Partition, chance: random.Random, number: int, *, rows: int, producer: int, gaps: bool) -> None:
    base = log.end
    offsets = [base + i for i in range(rows) if not gaps or chance.random() < 0.7]
    records = tuple(
        record_batches.Record(offset, value=b"%d.%d " % (number, offset) + bytes(chance.choice((0, 9, 80))))
        for offset in offsets
    )
    append_time = record_batches.TIME if chance.random() < 0.2 else None
    batch = record_batches.Batch(
        records, base, base + rows - 1, chance.choice(("", "", "gzip")), append_time, producer=producer
    )
    data = record_batches.encode(batch)
    data = data[:12] + struct.pack(">i", log.epoch) + data[16:]  # the leader's epoch, which no checksum covers
    log.batches.append(Batch(base, batch.last, data, producer, 0))
    log.open.setdefault(producer, base)


def values(log: Partition, range_: OffsetRange) -> Iterator[bytes]:
    """The committed rows of a range, by kafka-python's decoder."""
    for batch in log.visible():
        for records in MemoryRecords(batch.data):
            yield from (r.value for r in records if range_.start <= r.offset < range_.end)
