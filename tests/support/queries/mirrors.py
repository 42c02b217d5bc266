"""Mirrors between two clusters, for tests in one Spark session."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.pipelines.mirror.entries import MapEntry, from_record
from spark_eos.pipelines.mirror.offset_map import OffsetMap
from spark_eos.pipelines.mirror.plan import Targets
from spark_eos.pipelines.mirror.start import mirror
from tests.support.judges.kafka_view import KafkaView, Row
from tests.support.kills.query import Spec
from tests.support.queries.copies import copied
from tests.support.queries.drained_query import Drained
from tests.support.waiting import TIMEOUT, wait_for


class Mirror(Drained):
    """A mirror and its checkpoint; ``run`` may be called again and again. ``here`` and ``there`` are the clusters."""

    def __init__(
        self, spark: SparkSession, here: KafkaView, there: KafkaView, folder: Path, topics: str, **targets: Any
    ) -> None:
        self.spark, self.here, self.there, self.topics = spark, here, there, topics
        self.checkpoint = folder / "checkpoint"
        self.targets = Targets(**targets)
        self.reads: dict[str, str] = {"subscribe": topics}
        self.writes: dict[str, str] = {}
        self.trigger: dict[str, object] = {"availableNow": True}

    def start(self) -> StreamingQuery:
        """``reads`` and ``writes`` are options besides."""
        return mirror(
            self.spark,
            source={
                "kafka.bootstrap.servers": self.here.bootstrap_servers,
                "startingOffsets": "earliest",
                **self.reads,
            },
            target={"kafka.bootstrap.servers": self.there.bootstrap_servers, **self.writes},
            targets=self.targets,
            checkpoint=str(self.checkpoint),
            trigger=self.trigger,
        )

    def map(self, topic: str, offsets: Mapping[int, Collection[int]]) -> OffsetMap:
        """The offset map as it is now, for offsets of partitions of a topic of the source."""
        wanted = {(topic, partition): some for partition, some in offsets.items()}
        return OffsetMap.read(self.client, cluster_of(self.here), wanted, self.targets.map)

    def entries(self) -> list[MapEntry]:
        """Those of the offset map, ascending, as a plain consumer sees them."""
        newest = {row.key: row.value for row in self.there.rows(self.targets.map)}
        found = (from_record(key, value) for key, value in newest.items() if key is not None and value is not None)
        return sorted((entry for entry in found if entry is not None), key=lambda entry: entry.first)

    @property
    def client(self) -> BrokerClient:
        """A client of the target."""
        return broker_client(KafkaProperties({"bootstrap.servers": self.there.bootstrap_servers}))


def cluster_of(view: KafkaView) -> str:
    """The cluster's id, by another client than ours."""
    return str(view.admin.list_topics(timeout=TIMEOUT).cluster_id)


def seen(view: KafkaView, topic: str) -> list[Row]:
    """What consumers see, when the markers are written."""
    wait_for(lambda: not view.held(topic), "the markers")
    return view.rows(topic)


def check_same(mirror: Mirror, *topics: str) -> None:
    """Plain consumers see the same on both sides: keys, values, headers, timestamps, in the order of each partition;
    and each row is where the offset map says."""
    for topic in topics:
        source, result = seen(mirror.here, topic), seen(mirror.there, mirror.targets.name(topic))
        assert copied(result) == copied(source)
        map_ = mirror.map(topic, offsets_of(source))
        assert misplaced(map_, topic, mirror.targets.name(topic), source, result) == []


def offsets_of(rows: Iterable[Row]) -> dict[int, list[int]]:
    """The offsets of rows of one topic, by partition."""
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(row.partition, []).append(row.offset)
    return found


def misplaced(map_: OffsetMap, topic: str, target: str, source: list[Row], result: list[Row]) -> list[str]:
    """Rows of the source that the map translates to another place than their own, which is told by the order in the
    partition. ``source`` and ``result``: all rows that consumers see of a topic and of its target."""
    places: dict[int, list[int]] = {}
    for row in reversed(result):
        places.setdefault(row.partition, []).append(row.offset)
    found = []
    for row in source:
        place = map_.translate(topic, row.partition, row.offset)
        own = places[row.partition].pop() if places.get(row.partition) else None
        if (place.topic, place.partition, place.offset) != (target, row.partition, own):
            found.append(f"{row.offset} of {topic}-{row.partition} is at {own}, and translated to {place}")
    return found


def misplaced_by(view: KafkaView, spec: Spec) -> list[str]:
    """See `misplaced`, of a mirror within one cluster. Where its source ends is covered, too."""
    client = broker_client(KafkaProperties({"bootstrap.servers": view.bootstrap_servers}))
    ends, rows = view.ends(spec.input), view.rows(spec.input)
    offsets = offsets_of(rows)
    wanted = {(topic, p): [*offsets.get(p, ()), end] for (topic, p), end in ends.items()}
    map_ = OffsetMap.read(client, cluster_of(view), wanted)
    for (topic, partition), end in ends.items():
        map_.translate(topic, partition, end)
    return misplaced(map_, spec.input, spec.output, rows, view.rows(spec.output))


def beside(view: KafkaView, topic: str, **config: str) -> str:
    """Make the target of a mirror within one cluster, as its source is, with these settings; its name."""
    partitions = view.admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions
    target = f"mirror-of-{topic}"
    made = NewTopic(target, len(partitions), len(partitions[0].replicas), config=config)
    view.admin.create_topics([made])[target].result(timeout=TIMEOUT)
    wait_for(lambda: all(of >= 0 for of in _leaders(view, target)) and _leaders(view, target), f"leaders of {target}")
    return target


def _leaders(view: KafkaView, topic: str) -> list[int]:
    return [p.leader for p in view.admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions.values()]
