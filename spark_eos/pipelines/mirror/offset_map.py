"""The offset map: a topic of the target's cluster that says where positions of the source are in the target.

Its first partition has the *origins* of target topics, so that no row goes round in circles, and the claims on topics
(`spark_eos.pipelines.mirror.owner`); the others have the entries (`spark_eos.pipelines.mirror.entries`).
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Producer

from spark_eos.base import system
from spark_eos.base.log import logger
from spark_eos.base.retry import retrying
from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import ConnectionFailed, EosError, Unauthorized, stop
from spark_eos.kafka.admin.configs import create_topic, topic_config
from spark_eos.kafka.config.librdkafka import IDEMPOTENT, librdkafka_config
from spark_eos.ledger.log import CommittedRecords
from spark_eos.pipelines.mirror.entries import (
    ENTRY_PARTITIONS,
    Extents,
    MapEntry,
    Ranges,
    SourcePartition,
    TargetPosition,
    from_record,
    partition_of,
    position_in,
    prefix_of,
    split_key,
)
from spark_eos.spi import BrokerClient, describe_topics, end_offsets

DEFAULT_MAP = "__spark_eos_mirror"
#: The partition of the map that has the origins of topics, and the claims on them.
METADATA = 0

#: Errors of decoding a record that begins as a mirror's record does, and is none.
FOREIGN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

_WRITE_S = 30.0
_PARTITIONS = METADATA + 1 + ENTRY_PARTITIONS
_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(100 << 20),  # the newest segment is never cleaned
    "compression.type": "producer",
}


def make_map(client: BrokerClient, topic: str, replication: int) -> None:
    """Create the topic if it is missing, and check that it is compacted. Raises TopicError, KafkaError."""
    if not describe_topics(client, [topic], missing_ok=True, unknown_s=0):
        why = create_topic(client, topic, _PARTITIONS, replication, _CONFIG)
        if why:
            raise not_made(topic, why)
    policy = topic_config(client, topic)["cleanup.policy"]
    if policy != "compact":
        raise unfit(topic, "cleanup.policy", policy, "compact", "entries of the offset map would be deleted")


class OffsetMapWriter:
    """Writes records to the map's topic outside of any transaction."""

    def __init__(self, client: BrokerClient, topic: str) -> None:
        own = {**IDEMPOTENT, "queue.buffering.max.messages": "0"}
        self._producer = Producer(librdkafka_config(client.properties, "producer", own))
        self._topic = topic
        self._refused: set[str] = set()

    def write(self, partition: int, key: bytes, value: bytes | None) -> None:
        self._producer.produce(self._topic, value, key, partition=partition, on_delivery=self._delivered)

    def flush(self, wait_s: float) -> str:
        """Wait until the brokers have everything. Returns an empty text, or the reason why they do not."""
        left = self._producer.flush(wait_s)
        return "; ".join(sorted(self._refused)) or "no answer" if left or self._refused else ""

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._refused.add(str(error))


def write_metadata(client: BrokerClient, topic: str, records: Iterable[tuple[bytes, bytes | None]], what: str) -> None:
    """Write records, of key and value, to the partition `METADATA`. Returns when the brokers have them. ``what``:
    describes the records, for the error. Raises KafkaError (EOS_MIRROR_MAP_NOT_WRITABLE)."""
    writer = OffsetMapWriter(client, topic)
    for key, value in records:
        writer.write(METADATA, key, value)
    refused = writer.flush(_WRITE_S)
    if refused:
        raise stop("EOS_MIRROR_MAP_NOT_WRITABLE", topic=topic, what=what, refused=refused, then="Nothing was mirrored")


def unfit(topic: str, setting: str, has: str, needed: str, why: str) -> EosError:
    """Return the error of a setting by which the target's topic would lose something of the mirror's."""
    return stop("EOS_MIRROR_TARGET_SETTINGS", topic=topic, setting=setting, value=has, why=why, needed=needed)


def not_made(topic: str, why: str) -> EosError:
    """Return the error for a map that cannot be created. ``why``: the broker's message, or the name of its error
    code."""
    return stop("EOS_MIRROR_TOPIC_REFUSED.not_created", topic=topic, why=why)


def map_partitions(client: BrokerClient, topic: str) -> int:
    """Return the number of partitions of the map's topic. Raises as `describe_topics`."""
    return describe_topics(client, [topic])[topic].partitions


def held_partition(client: BrokerClient, topic: str, wait_s: float) -> int | None:
    """Wait for ``wait_s`` seconds until all that the map has now is stable; a partition where it is not, or None."""
    numbers = {topic: range(map_partitions(client, topic))}
    ends = end_offsets(client, numbers, "read_uncommitted")[topic]
    behind: list[int] = []
    for _ in retrying(wait_s):
        stable = end_offsets(client, numbers)[topic]
        behind = [p for p, end in ends.items() if stable[p] < end]
        if not behind:
            return None
    return behind[0]


class MapPartition(CommittedRecords):
    """One partition of the map's topic. Raises KafkaError (EOS_MIRROR_MAP_UNREADABLE) where it cannot be read."""

    def unreadable(self, offset: int, why: str) -> EosError:
        return unreadable(self.topic, self.number, offset, why)


def unreadable(topic: str, partition: int, offset: int, why: str) -> EosError:
    return stop("EOS_MIRROR_MAP_UNREADABLE", topic=topic, offset=offset, partition=partition, why=why)


def foreign(topic: str, partition: int, offset: int, error: Exception) -> EosError:
    """Return the error for a record that is not the map's. ``error``: one of `FOREIGN`, which decoding the record at
    this offset has raised."""
    why = f"the record there is none that a mirror has written ({type(error).__name__})"
    return unreadable(topic, partition, offset, why)


# Origins


#: How many seconds a map's topic must be unknown to brokers to count as missing.
_UNKNOWN_S = 1.0
#: How the key of an origin begins.
_ORIGIN_KEY = b'{"origin":'


@dataclass(frozen=True)
class Origin:
    """A target topic and the topic that it is mirrored from. ``chain``: ids of clusters, the nearest first: the source,
    and the clusters from which the source itself is mirrored."""

    target: str
    target_id: str
    source: str
    source_id: str
    chain: tuple[str, ...]

    def is_from(self, cluster: str) -> bool:
        """Return whether the topic is mirrored directly from this cluster."""
        return self.chain[:1] == (cluster,)


class OriginsLog:
    """The origins of all topics of a cluster, for repeated reads: each reads only new records."""

    def __init__(self, client: BrokerClient, map_topic: str) -> None:
        self._client, self._topic = client, map_topic
        self._id, self._end = "", 0
        self._newest: dict[bytes, tuple[int, bytes | None]] = {}
        self._known: list[Origin] = []
        self._asked_s = -math.inf

    def read(self, unknown_s: float = _UNKNOWN_S) -> list[Origin]:
        """Return the origins as they are now; if the map's topic is missing, the origins that were read before.
        ``unknown_s`` as in `describe_topics`; errors as for `MapPartition`, and Unauthorized: a mirror that
        did not see a circle would copy its own rows for ever."""
        self._asked_s = system.monotonic()
        try:
            there = describe_topics(self._client, [self._topic], missing_ok=True, unknown_s=unknown_s).get(self._topic)
        except Unauthorized:
            operation = f"READ the topic {self._topic} on {self._client.bootstrap_servers}, which tells of circles"
            rights = "READ on it in the source, also before it is there, and READ and WRITE in the target"
            raise stop("EOS_UNAUTHORIZED", operation=operation, rights=rights, topic=self._topic) from None
        if there is None:
            return self._known
        part = MapPartition(self._client, self._topic, METADATA)
        if there.id != self._id or part.end < self._end:
            self._id, self._end, self._newest = there.id, 0, {}
        rows = part.since(self._end)
        # A map of one partition has its entries here, too.
        self._newest |= {key: (at, value) for at, key, value in rows if key is not None and key.startswith(_ORIGIN_KEY)}
        self._end = part.end
        newest = self._newest.items()
        self._known = [self._origin(at, key, value) for key, (at, value) in newest if value is not None]
        return self._known

    def _origin(self, at: int, key: bytes, value: bytes) -> Origin:
        try:
            return _origin(key, value)
        except FOREIGN as error:
            raise foreign(self._topic, METADATA, at, error) from None

    def lately(self, age_s: float) -> list[Origin]:
        """Return the origins as they were at most ``age_s`` seconds ago; older ones while no broker answers."""
        if system.monotonic() - self._asked_s >= age_s:
            try:
                return self.read(unknown_s=0)
            except ConnectionFailed as error:
                logger.warning("whether a new mirror has closed a circle is not known at the moment: %s", error.message)
        return self._known


def _origin(key: bytes, value: bytes) -> Origin:
    ids, fields = json.loads(key), json.loads(value)
    return Origin(fields["target"], ids["origin"], fields["source"], ids["source"], tuple(fields["chain"]))


def origins(client: BrokerClient, map_topic: str) -> list[Origin]:
    """Return the origins of all topics of a cluster; none if nothing was ever mirrored to it. Errors as for
    `MapPartition`."""
    return OriginsLog(client, map_topic).read()


def origins_from(client: BrokerClient, map_topic: str, cluster: str) -> list[Origin]:
    """Return the origins of the topics that are mirrored directly from ``cluster``, an id. Raises TopicError
    (EOS_TOPIC_MISSING) if there is no map, and errors as for `MapPartition`."""
    describe_topics(client, [map_topic])
    return [origin for origin in origins(client, map_topic) if origin.is_from(cluster)]


def chains_of(known: Iterable[Origin]) -> dict[str, tuple[str, ...]]:
    """Return the id of each target topic → the clusters that its rows may come from."""
    chains: dict[str, set[str]] = {}
    for origin in known:
        chains.setdefault(origin.target_id, set()).update(origin.chain)
    return {topic_id: tuple(sorted(clusters)) for topic_id, clusters in chains.items()}


def write_origin(client: BrokerClient, map_topic: str, origin: Origin) -> None:
    """Write the origin, and return when the brokers have it. Raises KafkaError (EOS_MIRROR_MAP_NOT_WRITABLE)."""
    key = json.dumps({"origin": origin.target_id, "source": origin.source_id}).encode()
    fields = {"target": origin.target, "source": origin.source, "chain": origin.chain}
    write_metadata(client, map_topic, [(key, json.dumps(fields).encode())], f"Where {origin.target} comes from")


# Entries


#: How often to read a partition of the map from the beginning, as the broker has removed a record that is looked up:
#: it compacts every few minutes.
_TRIES = 3


@dataclass(frozen=True)
class Translation:
    """Part of the map for one partition of the source: offsets ``begin`` to ``end``; ``doubled``, ``holes``,
    ``targets`` and ``rowless`` as in `Ranges`. ``positions``: where each wanted offset is in the target; None if it is
    not covered, or no range has a row."""

    begin: int
    end: int
    doubled: bool
    positions: Mapping[int, TargetPosition | None]
    holes: tuple[tuple[int, int], ...] = ()
    targets: Mapping[str, int] = field(default_factory=dict)
    rowless: bool = False

    def reaches(self, offset: int) -> bool:
        """Return whether the position is between begin and end, and in no hole."""
        return self.begin <= offset <= self.end and not any(begin < offset < end for begin, end in self.holes)


class OffsetMap:
    """The offset map as it was when it was read. ``translations``: its entries for the wanted partitions. ``ids``: the
    topics' ids that count, by name. ``ends``: how far each partition of the map's topic was read."""

    def __init__(
        self,
        cluster: str,
        translations: Mapping[SourcePartition, Translation],
        ids: Mapping[str, Collection[str]],
        ends: Mapping[int, int],
    ) -> None:
        self.cluster, self.translations, self.ends = cluster, translations, ends
        self._ids = ids

    @classmethod
    def read(
        cls,
        client: BrokerClient,
        cluster: str,
        wanted: Mapping[TopicPartition, Collection[int]],
        topic: str = DEFAULT_MAP,
        *,
        ids: Mapping[str, str] | None = None,
    ) -> OffsetMap:
        """Read the map from the target's cluster, ``client``. ``cluster``: the id of the source's cluster; ``wanted``:
        offsets in its partitions; ``ids``: ids of its topics, by name. A topic without one counts with every id that it
        had when it was mirrored.

        Raises TopicError (EOS_TOPIC_MISSING), ConnectionFailed, KafkaError (EOS_MIRROR_MAP_UNREADABLE).
        """
        every = {name: [id_] for name, id_ in (ids or {}).items()}
        if any(name not in every for name, _ in wanted):
            for origin in origins_from(client, topic, cluster):
                if ids is None or origin.source not in ids:
                    every.setdefault(origin.source, []).append(origin.source_id)
        count = map_partitions(client, topic)
        sources_by_number: dict[int, dict[SourcePartition, Collection[int]]] = defaultdict(dict)
        for (name, number), offsets in wanted.items():
            for id_ in every.get(name, ()):
                source = SourcePartition(cluster, id_, number)
                sources_by_number[partition_of(source, count)][source] = offsets
        translations: dict[SourcePartition, Translation] = {}
        ends: dict[int, int] = {}
        for number, sources in sorted(sources_by_number.items()):
            of_number, ends[number] = _read(client, topic, number, sources)
            translations |= of_number
        return cls(cluster, translations, every, ends)

    def get(self, topic_id: str, partition: int) -> Translation | None:
        """Return the translation for a wanted partition; None if the map has nothing of it."""
        return self.translations.get(SourcePartition(self.cluster, topic_id, partition))

    def mirrored(self) -> set[str]:
        """Return the topics that have entries in the map, in the wanted partitions."""
        there = {source.topic_id for source in self.translations}
        return {name for name, ids in self._ids.items() if not there.isdisjoint(ids)}

    def translate(self, topic: str, partition: int, offset: int, *, topic_id: str | None = None) -> TargetPosition:
        """Return the position in the target of a reader that has read all before ``offset`` in the source.

        ``topic_id``: needed only if there was more than one source topic of this name. Raises KafkaError
        (EOS_MIRROR_GROUP_REFUSED) for an offset that the map does not cover, ValueError for one that was not wanted.
        """
        ids = [topic_id] if topic_id is not None else sorted(set(self._ids.get(topic, ())))
        translations = [each for id_ in ids if (each := self.get(id_, partition)) is not None]
        if any(offset not in each.positions for each in translations):
            raise ValueError(f"offset {offset} of {topic}-{partition} was not wanted when the map was read")
        position = translations[0].positions[offset] if len(translations) == 1 else None
        if position is None:
            raise not_covered(topic, partition, offset, translations)
        return position


def not_covered(topic: str, partition: int, offset: int, translations: Sequence[Translation]) -> EosError:
    """Return the error for an offset that none of the translations of its partition covers."""
    spans = " and ".join(f"{each.begin} to {each.end}" for each in translations) or "nothing"
    position = {"topic": topic, "partition": partition, "offset": offset, "spans": spans}
    if any(each.doubled for each in translations):
        why = "Its rows were mirrored more than once, as by a mirror that began again, and are at two positions there."
        return stop("EOS_MIRROR_GROUP_REFUSED.untranslatable", why=why, **position)
    if any(len(each.targets) > 1 for each in translations):
        why = "Its rows were mirrored to several topics, of which none has all the rows that follow."
        return stop("EOS_MIRROR_GROUP_REFUSED.untranslatable", why=why, **position)
    if any(each.rowless for each in translations):
        return stop("EOS_MIRROR_GROUP_REFUSED.no_row", **position)
    return stop("EOS_MIRROR_GROUP_REFUSED.not_covered", **position)


class _Cleaned(Exception):
    """The broker has removed the record at offset ``at`` of the map, as a newer one has its key."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


def _read(
    client: BrokerClient, topic: str, number: int, wanted: Mapping[SourcePartition, Collection[int]]
) -> tuple[dict[SourcePartition, Translation], int]:
    """Return entries of the wanted sources in one partition of the map's topic, and the offset up to which it was
    read."""
    for _ in range(_TRIES):
        part = MapPartition(client, topic, number)
        extents = _extents(part, [prefix_of(source) for source in wanted])
        translations: dict[SourcePartition, Translation] = {}
        try:
            for source, offsets in wanted.items():
                ranges = extents.pop(prefix_of(source)).newest()
                if ranges is not None:
                    translations[source] = _translation(part, ranges, offsets)
        except _Cleaned as cleaned:
            gone = cleaned.at
        else:
            return translations, part.end
    raise unreadable(topic, number, gone, f"its records were replaced {_TRIES} times while they were read")


def _extents(part: MapPartition, prefixes: Collection[bytes]) -> dict[bytes, Extents]:
    extents = {prefix: Extents() for prefix in prefixes}
    for at, key, value in part:
        try:
            split = split_key(key)
            if split is not None and split[0] in extents:
                extents[split[0]].add(at, split[1], value)
        except FOREIGN as error:
            raise foreign(part.topic, part.number, at, error) from None
    return extents


def _translation(part: MapPartition, ranges: Ranges, offsets: Collection[int]) -> Translation:
    covered = {offset: ranges.entry_at(offset) for offset in offsets if ranges.covers(offset) and not ranges.rowless}
    entries = {at: _entry(part, at) for at in sorted(set(covered.values()))}
    positions = {
        offset: position_in(entries[covered[offset]], offset) if offset in covered else None for offset in offsets
    }
    return Translation(
        ranges.begin, ranges.end, ranges.doubled, positions, ranges.holes, ranges.targets, ranges.rowless
    )


def _entry(part: MapPartition, at: int) -> MapEntry:
    _, key, value = part.record(at) or (at, None, None)
    try:
        entry = None if key is None or value is None else from_record(key, value)
    except FOREIGN as error:
        raise foreign(part.topic, part.number, at, error) from None
    if entry is None:
        raise _Cleaned(at)
    return entry
