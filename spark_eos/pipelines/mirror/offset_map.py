"""Reads the offset map: where positions of the source are in the target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.topics import topic_partitions
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.pipelines.mirror.entries import (
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
from spark_eos.pipelines.mirror.map_topic import DEFAULT_MAP, FOREIGN, MapPartition, foreign, unreadable
from spark_eos.pipelines.mirror.origins import origins_from

#: How often to read a partition of the map from the beginning, as the broker has removed a record that is looked up:
#: it compacts every few minutes.
_TRIES = 3


@dataclass(frozen=True)
class Translation:
    """What the map has of one partition of the source: offsets ``begin`` to ``end``; ``doubled``, ``holes``,
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
        """Whether the position is between begin and end, and in no hole."""
        return self.begin <= offset <= self.end and not any(begin < offset < end for begin, end in self.holes)


class OffsetMap:
    """The offset map as it was when it was read. ``translations``: what it has of the wanted partitions. ``ids``: the
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

        Only the partitions of the map's topic that have the wanted entries are read, one after the other. 56 bytes are
        kept for each entry of the wanted partitions until its partition of the map is read. Raises TopicError
        (EOS_TOPIC_MISSING), ConnectionFailed, KafkaError (EOS_MIRROR_MAP_UNREADABLE).
        """
        every = {name: [id_] for name, id_ in (ids or {}).items()}
        if any(name not in every for name, _ in wanted):
            for origin in origins_from(client, topic, cluster):
                if ids is None or origin.source not in ids:
                    every.setdefault(origin.source, []).append(origin.source_id)
        count = topic_partitions(client, [topic])[topic]
        places: dict[int, dict[SourcePartition, Collection[int]]] = defaultdict(dict)
        for (name, number), offsets in wanted.items():
            for id_ in every.get(name, ()):
                source = SourcePartition(cluster, id_, number)
                places[partition_of(source, count)][source] = offsets
        found: dict[SourcePartition, Translation] = {}
        ends: dict[int, int] = {}
        for number, sources in sorted(places.items()):
            translations, ends[number] = _read(client, topic, number, sources)
            found |= translations
        return cls(cluster, found, every, ends)

    def get(self, topic_id: str, partition: int) -> Translation | None:
        """The translation for a wanted partition; None if the map has nothing of it."""
        return self.translations.get(SourcePartition(self.cluster, topic_id, partition))

    def mirrored(self) -> set[str]:
        """The topics of which the map has something, in the wanted partitions."""
        there = {source.topic_id for source in self.translations}
        return {name for name, ids in self._ids.items() if not there.isdisjoint(ids)}

    def translate(self, topic: str, partition: int, offset: int, *, topic_id: str | None = None) -> TargetPosition:
        """Where a reader of the target continues that has read all before ``offset`` in the source.

        ``topic_id``: needed only if there was more than one source topic of this name. Raises KafkaError
        (EOS_MIRROR_GROUP_REFUSED) for an offset that the map does not cover, ValueError for one that was not wanted.
        """
        ids = [topic_id] if topic_id is not None else sorted(set(self._ids.get(topic, ())))
        there = [found for found in (self.get(id_, partition) for id_ in ids) if found is not None]
        if any(offset not in found.positions for found in there):
            raise ValueError(f"offset {offset} of {topic}-{partition} was not wanted when the map was read")
        position = there[0].positions[offset] if len(there) == 1 else None
        if position is None:
            raise not_covered(topic, partition, offset, there)
        return position


def not_covered(topic: str, partition: int, offset: int, there: Sequence[Translation]) -> EosError:
    """``there``: the translations of the offset's partition, none of which covers it."""
    spans = " and ".join(f"{found.begin} to {found.end}" for found in there) or "nothing"
    what = {"topic": topic, "partition": partition, "offset": offset, "spans": spans}
    if any(found.doubled for found in there):
        why = "Its rows were mirrored more than once, as by a mirror that began again, and are at two positions there."
        return stop("EOS_MIRROR_GROUP_REFUSED.untranslatable", why=why, **what)
    if any(len(found.targets) > 1 for found in there):
        why = "Its rows were mirrored to several topics, of which none has all the rows that follow."
        return stop("EOS_MIRROR_GROUP_REFUSED.untranslatable", why=why, **what)
    if any(found.rowless for found in there):
        return stop("EOS_MIRROR_GROUP_REFUSED.no_row", **what)
    return stop("EOS_MIRROR_GROUP_REFUSED.not_covered", **what)


class _Cleaned(Exception):
    """The broker has removed the record at offset ``at`` of the map, as a newer one has its key."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


def _read(
    client: BrokerClient, topic: str, number: int, wanted: Mapping[SourcePartition, Collection[int]]
) -> tuple[dict[SourcePartition, Translation], int]:
    """What one partition of the map's topic has of the wanted sources, and up to which offset it was read."""
    for _ in range(_TRIES):
        part = MapPartition(client, topic, number)
        extents = _extents(part, [prefix_of(source) for source in wanted])
        found: dict[SourcePartition, Translation] = {}
        try:
            for source, offsets in wanted.items():
                ranges = extents.pop(prefix_of(source)).newest()
                if ranges is not None:
                    found[source] = _translation(part, ranges, offsets)
        except _Cleaned as cleaned:
            gone = cleaned.at
        else:
            return found, part.end
    raise unreadable(topic, number, gone, f"its records were replaced {_TRIES} times while they were read")


def _extents(part: MapPartition, prefixes: Collection[bytes]) -> dict[bytes, Extents]:
    found = {prefix: Extents() for prefix in prefixes}
    for at, key, value in part:
        try:
            split = split_key(key)
            if split is not None and split[0] in found:
                found[split[0]].add(at, split[1], value)
        except FOREIGN as error:
            raise foreign(part.topic, part.number, at, error) from None
    return found


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
