"""Where positions of a source are in the target, as soon as a mirror has come that far."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spark_eos.kafka.admin.topics import (
    Topic,
    begin_offsets,
    cluster_id,
    describe_topics,
    end_offsets,
    topic_partitions,
)
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.mirror.entries import SourcePartition, TargetPosition, partition_of
from spark_eos.mirror.offset_map import OffsetMap, Translation, not_covered
from spark_eos.mirror.origins import Origin
from spark_eos.topic_partition import TopicPartition, by_topic


@dataclass(frozen=True)
class Step:
    """One position: where it is in the source, and in the target."""

    topic: str
    partition: int
    offset: int
    place: TargetPosition


def translated(
    source: KafkaProperties,
    target: KafkaProperties,
    map_topic: str,
    topic: str,
    partition: int,
    offsets: Collection[int],
    topic_id: str | None = None,
) -> tuple[Step, ...]:
    """Where offsets of a partition of the source are in the target, in their order. ``topic_id``: of another topic than
    the one that has this name now. Raises KafkaError (EOS_MIRROR_GROUP_REFUSED), and what `OffsetMap.read` does."""
    now = {} if topic_id else describe_topics(source, [topic], missing_ok=True)
    id_ = now[topic].id if topic in now else topic_id
    ids = None if id_ is None else {topic: id_}
    map_ = OffsetMap.read(target, cluster_id(source), {(topic, partition): offsets}, map_topic, ids=ids)
    return tuple(Step(topic, partition, offset, map_.translate(topic, partition, offset)) for offset in offsets)


@dataclass(frozen=True)
class Start:
    """Where a reader of the target goes on, if the partition of the map called ``number`` has no row of the source's
    partition up to ``map_end``."""

    place: TargetPosition
    number: int
    map_end: int


@dataclass(frozen=True)
class _Target:
    """``partitions``: how many the topic has that rows of the origin's go to."""

    origin: Origin
    partitions: int


@dataclass
class Positions:
    """Positions in what is mirrored from ``cluster``. ``topics``: those of the source that are there now; ``origins``:
    of all that is mirrored from there."""

    source: KafkaProperties
    target: KafkaProperties
    map: str
    cluster: str
    topics: Mapping[str, Topic]
    origins: Sequence[Origin]
    _found: dict[TopicPartition, Translation | None] = field(default_factory=dict)
    _starts: dict[TopicPartition, Start] = field(default_factory=dict)
    _known: dict[TopicPartition, TargetPosition | None] = field(default_factory=dict)

    def look(self, wanted: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Look for what is not known yet; what the map may still come to cover."""
        lacking = self._read(wanted)
        idle = {place: wanted[place] for place in lacking if place not in self._starts and self._has_no_row(place)}
        new = self._begun(idle)
        self._starts |= new
        return self._read(wanted) if new else lacking

    def holes(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """Where, of what was looked for, the source has offsets behind the position that were never mirrored, and
        others behind them were: the first such gap of each partition."""
        gaps = {place: found.holes for place, found in self._found.items() if found is not None and place in wanted}
        ahead = [place for place, holes in gaps.items() if holes and holes[-1][1] > wanted[place]]
        begins = begin_offsets(self.source, by_topic(ahead)) if ahead else {}
        firsts = {(t, p): max(wanted[t, p], begins[t][p]) for t, p in ahead}
        there = {place: [hole for hole in gaps[place] if hole[1] > first] for place, first in firsts.items()}
        return {place: holes[0] for place, holes in there.items() if holes}

    def place(self, topic: str, partition: int, offset: int) -> TargetPosition:
        """The place in the target of an offset that was looked for. Raises KafkaError (EOS_MIRROR_GROUP_REFUSED)."""
        place = self._known.get((topic, partition))
        if place is None:
            found = self._found[topic, partition]
            raise not_covered(topic, partition, offset, [] if found is None else [found])
        return place

    def _read(self, wanted: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        left = {place: offset for place, offset in wanted.items() if place not in self._known}
        here = {place: [offset] for place, offset in left.items() if place[0] in self.topics}
        ids = {name: topic.id for name, topic in self.topics.items()}
        map_ = OffsetMap.read(self.target, self.cluster, here, self.map, ids=ids)
        lacking = []
        for (topic, p), offset in left.items():
            found = self._found[topic, p] = map_.of(ids.get(topic, ""), p)
            start = self._starts.get((topic, p))
            if found is not None and offset <= found.end and not found.rowless:
                self._known[topic, p] = found.positions[offset]
            elif self._has_no_row((topic, p)) and start is not None and map_.ends[start.number] >= start.map_end:
                self._known[topic, p] = start.place
            else:
                lacking.append((topic, p))
        return lacking

    def _has_no_row(self, place: TopicPartition) -> bool:
        found = self._found[place]
        return found is None or found.rowless

    def _begun(self, idle: Mapping[TopicPartition, int]) -> dict[TopicPartition, Start]:
        """Where partitions begin that have no row before this offset, and that a mirror follows: it has made their
        targets. They are empty, or all that the map has up to there are ranges without rows.

        That is the end of the target's partition, by three looks in this order. (1) That end, as far as it is stable.
        (2) The source ends at this offset, or the map has no row: so what is before (1) in the target is no row from
        behind the offset in the source, and what comes later is not before (1). (3) The end of the map's partition: a
        transaction that is open at (1), and may have rows of before the offset, has its entries before (3); they are
        seen when it is stable up to there.
        """
        targets = self._targets({topic for topic, _ in idle if topic in self.topics})
        here = {(t, p): o for (t, p), o in idle.items() if t in targets and p < targets[t].partitions}
        ends = end_offsets(self.target, by_topic((targets[t].origin.target, p) for t, p in here))
        empty = self._empty(here)
        if not empty:
            return {}
        count = topic_partitions(self.target, [self.map])[self.map]
        numbers = {(t, p): partition_of(SourcePartition(self.cluster, self.topics[t].id, p), count) for t, p in empty}
        map_ends = end_offsets(self.target, {self.map: sorted(set(numbers.values()))}, "read_uncommitted")
        starts = {}
        for (topic, p), number in numbers.items():
            origin = targets[topic].origin
            place = TargetPosition(origin.target, origin.target_id, p, ends[origin.target][p])
            starts[topic, p] = Start(place, number, map_ends[self.map][number])
        return starts

    def _empty(self, idle: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """The partitions whose logs, in the source, begin and end at this offset, and those up to which the map has no
        row."""
        rowless = [place for place in idle if (found := self._found[place]) is not None and found.reaches(idle[place])]
        there = [(t, p) for t, p in idle if p < self.topics[t].partitions and (t, p) not in rowless]
        begins = begin_offsets(self.source, by_topic(there))
        ends = end_offsets(self.source, by_topic(there), "read_uncommitted")
        return rowless + [(t, p) for t, p in there if begins[t][p] == ends[t][p] == idle[t, p]]

    def _targets(self, topics: Collection[str]) -> dict[str, _Target]:
        """The target of each topic, if there is just one that is what the mirror has made."""
        known = {topic: [o for o in self.origins if o.source_id == self.topics[topic].id] for topic in topics}
        there = describe_topics(self.target, {o.target for some in known.values() for o in some}, missing_ok=True)
        found = {}
        for topic, origins in known.items():
            made = [o for o in origins if o.target in there and there[o.target].id == o.target_id]
            if len(made) == 1:
                found[topic] = _Target(made[0], there[made[0].target].partitions)
        return found
