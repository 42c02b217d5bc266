"""The offset map as far as somebody asks for it: where positions of the source are in the target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.topics import topic_partitions
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.mirror.entries import (
    Extents,
    MapEntry,
    Ranges,
    SourcePartition,
    TargetPosition,
    from_record,
    partition_of,
    place_of,
    position_in,
    split_key,
)
from spark_eos.mirror.map_topic import DEFAULT_MAP, MapPartition, unreadable
from spark_eos.mirror.origins import origins_from
from spark_eos.topic_partition import TopicPartition

#: How often a partition of the map is read while the broker removes what is looked for: it cleans every few minutes.
_TRIES = 3


@dataclass(frozen=True)
class Translation:
    """What the map has of one partition of the source: offsets ``begin`` to ``end``; ``doubled``, ``holes``,
    ``targets`` and ``rowless`` as of `Ranges`. ``positions``: where each offset that was asked for is in the target,
    None for those that are not covered, and for all where no range has a row."""

    begin: int
    end: int
    doubled: bool
    positions: Mapping[int, TargetPosition | None]
    holes: tuple[tuple[int, int], ...] = ()
    targets: Mapping[str, int] = field(default_factory=dict)
    rowless: bool = False

    def reaches(self, offset: int) -> bool:
        """Whether the map has all that is right before this position, if anything is."""
        return self.begin <= offset <= self.end and not any(begin < offset < end for begin, end in self.holes)


class OffsetMap:
    """What the map said when it was read. ``translations``: of the partitions that were asked for, those that it has.
    ``ids``: by topic, the ids that count. ``ends``: to where each partition of the map's topic was read."""

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
        kafka: KafkaProperties,
        cluster: str,
        wanted: Mapping[TopicPartition, Collection[int]],
        topic: str = DEFAULT_MAP,
        *,
        ids: Mapping[str, str] | None = None,
    ) -> OffsetMap:
        """From the target's cluster. ``cluster``: the id of the source's; ``wanted``: offsets of its partitions;
        ``ids``: of topics of the source of which one life counts; else all of its lives that were mirrored do.

        Only those partitions of the map's topic are read that have what is wanted, one after the other: of an entry of
        the wanted partitions 40 bytes are kept until its partition of the map is read, of others nothing. Raises
        TopicError (EOS_TOPIC_MISSING), ConnectionFailed, KafkaError (EOS_MIRROR_MAP_UNREADABLE).
        """
        every = {name: [id_] for name, id_ in (ids or {}).items()}
        if any(name not in every for name, _ in wanted):
            for origin in origins_from(kafka, topic, cluster):
                if ids is None or origin.source not in ids:
                    every.setdefault(origin.source, []).append(origin.source_id)
        count = topic_partitions(broker_client(kafka), [topic])[topic]
        places: dict[int, dict[SourcePartition, Collection[int]]] = defaultdict(dict)
        for (name, number), offsets in wanted.items():
            for id_ in every.get(name, ()):
                source = SourcePartition(cluster, id_, number)
                places[partition_of(source, count)][source] = offsets
        found: dict[SourcePartition, Translation] = {}
        ends: dict[int, int] = {}
        for number, sources in sorted(places.items()):
            translations, ends[number] = _read(kafka, topic, number, sources)
            found |= translations
        return cls(cluster, found, every, ends)

    def of(self, topic_id: str, partition: int) -> Translation | None:
        """The translation for a partition that was asked for; None if the map has nothing of it."""
        return self.translations.get(SourcePartition(self.cluster, topic_id, partition))

    def mirrored(self) -> set[str]:
        """The topics of which the map has something, in the partitions that were asked for."""
        there = {source.topic_id for source in self.translations}
        return {name for name, ids in self._ids.items() if not there.isdisjoint(ids)}

    def translate(self, topic: str, partition: int, offset: int, *, topic_id: str | None = None) -> TargetPosition:
        """Where a reader of the target goes on that has read all that is before ``offset`` in the source.

        ``topic_id``: the source topic's, needed only if there was more than one of this name. Raises KafkaError
        (EOS_MIRROR_GROUP_REFUSED) for what is before the map's beginning, or has not been mirrored yet; ValueError for
        a position that was not asked for.
        """
        ids = [topic_id] if topic_id is not None else sorted(set(self._ids.get(topic, ())))
        there = [found for found in (self.of(id_, partition) for id_ in ids) if found is not None]
        if any(offset not in found.positions for found in there):
            raise ValueError(f"offset {offset} of {topic}-{partition} was not asked for when the map was read")
        position = there[0].positions[offset] if len(there) == 1 else None
        if position is None:
            raise not_covered(topic, partition, offset, there)
        return position


def not_covered(topic: str, partition: int, offset: int, there: Sequence[Translation]) -> EosError:
    """For an offset that no translation holds. ``there``: those of its partition."""
    spans = " and ".join(f"{found.begin} to {found.end}" for found in there) or "nothing"
    return stop(
        "EOS_MIRROR_GROUP_REFUSED.not_covered",
        why_not=_why_not(there),
        topic=topic,
        partition=partition,
        offset=offset,
        spans=spans,
    )


def _why_not(there: Sequence[Translation]) -> str:
    if any(found.doubled for found in there):
        return (
            "Its rows were mirrored more than once, as by a mirror that began again: they are at two places in the "
            "target, and it is not known at which one the group is to continue."
        )
    if any(len(found.targets) > 1 for found in there):
        return (
            "Its rows were mirrored to several topics, as by mirrors with different prefixes: none of them has all "
            "that follow. Let the group read on at the source."
        )
    if any(found.rowless for found in there):
        return "Wait for the first row: none was mirrored so far."
    return (
        "Beyond the end, wait for the mirror. Before the beginning, read on at the source: the rows were never "
        "mirrored, or their entries are gone, as the source has deleted them. If a topic was recreated, give its id."
    )


class _Cleaned(Exception):
    """The record at offset ``at`` of the map is gone, as a newer one has its key."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


def _read(
    kafka: KafkaProperties, topic: str, number: int, wanted: Mapping[SourcePartition, Collection[int]]
) -> tuple[dict[SourcePartition, Translation], int]:
    """What one partition of the map's topic has of these sources, and to where it was read."""
    for _ in range(_TRIES):
        part = MapPartition(kafka, topic, number)
        extents = _extents(part, [place_of(source) for source in wanted])
        found: dict[SourcePartition, Translation] = {}
        try:
            for source, offsets in wanted.items():
                ranges = extents.pop(place_of(source)).newest()
                if ranges is not None:
                    found[source] = _translation(part, ranges, offsets)
        except _Cleaned as cleaned:
            gone = cleaned.at
        else:
            return found, part.end
    raise unreadable(topic, number, gone, f"its records were replaced {_TRIES} times while they were read")


def _extents(part: MapPartition, places: Collection[bytes]) -> dict[bytes, Extents]:
    found = {place: Extents() for place in places}
    for at, key, value in part:
        split = split_key(key)
        if split is not None and split[0] in found:
            found[split[0]].add(at, split[1], value)
    return found


def _translation(part: MapPartition, ranges: Ranges, offsets: Collection[int]) -> Translation:
    covered = {offset: ranges.place(offset) for offset in offsets if ranges.covers(offset) and not ranges.rowless}
    entries = {at: _entry(part, at) for at in sorted(set(covered.values()))}
    positions = {
        offset: position_in(entries[covered[offset]], offset) if offset in covered else None for offset in offsets
    }
    return Translation(
        ranges.begin, ranges.end, ranges.doubled, positions, ranges.holes, ranges.targets, ranges.rowless
    )


def _entry(part: MapPartition, at: int) -> MapEntry:
    _, key, value = part.record(at) or (at, None, None)
    entry = None if key is None or value is None else from_record(key, value)
    if entry is None:
        raise _Cleaned(at)
    return entry
