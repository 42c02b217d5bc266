"""Offsets of a mirror's source and of its target: one position translated, a consumer group moved, a mirror resumed.

- `translate` says where positions of the source are in the target.
- `GroupMover` commits a group's offsets at the target, so that it continues there where it was in the source.
- `MirrorQuery.position` says where a new checkpoint begins when that of the mirror is lost. The offset map has that
  exactly, as an entry is visible if and only if the rows of its range are. So nothing may be under way of the query
  that has written them: it is closed, and its decisions are settled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from spark_eos.base.retry import retrying
from spark_eos.base.topic_partition import PartitionOffsets, TopicPartition, by_topic
from spark_eos.errors import EosError, phrase, stop
from spark_eos.kafka.admin.groups import ConsumerGroup
from spark_eos.ledger.operator import QueryOperator
from spark_eos.options.offsets import EARLIEST
from spark_eos.pipelines.copy.ranges import copied_by, ranges_of
from spark_eos.pipelines.mirror.entries import SourcePartition, TargetPosition, partition_of
from spark_eos.pipelines.mirror.offset_map import (
    DEFAULT_MAP,
    OffsetMap,
    Origin,
    Translation,
    held_partition,
    map_partitions,
    not_covered,
    origins_from,
)
from spark_eos.pipelines.mirror.owner import read_claims
from spark_eos.protocol.head import Verdict
from spark_eos.spi import BrokerClient, Decision, Topic, begin_offsets, cluster_id, describe_topics, end_offsets

#: Timeout for the offsets of a group, at least: for its coordinator to answer.
_ANSWER_S = 12.0
_NEVER_MIRRORED = "it was never mirrored, or recreated since"


@dataclass(frozen=True)
class TranslatedOffset:
    """A position in the source, and the position in the target where a reader continues that has read all before it."""

    topic: str
    partition: int
    offset: int
    target: TargetPosition


def translate(
    source: BrokerClient,
    target: BrokerClient,
    map_topic: str,
    topic: str,
    partition: int,
    offsets: Collection[int],
    topic_id: str | None = None,
) -> tuple[TranslatedOffset, ...]:
    """Translate offsets of one partition of the source, in their order. ``topic_id``: of a topic that was deleted or
    recreated since; otherwise the topic is the one that has this name now. Raises KafkaError
    (EOS_MIRROR_GROUP_REFUSED), and the errors of `OffsetMap.read`."""
    now = {} if topic_id else describe_topics(source, [topic], missing_ok=True)
    id_ = now[topic].id if topic in now else topic_id
    ids = None if id_ is None else {topic: id_}
    map_ = OffsetMap.read(target, cluster_id(source), {(topic, partition): offsets}, map_topic, ids=ids)
    return tuple(
        TranslatedOffset(topic, partition, offset, map_.translate(topic, partition, offset)) for offset in offsets
    )


@dataclass(frozen=True)
class GroupMove:
    """A group's move, as it was done, or would be. ``not_mirrored``: topics of the group whose offsets stay as they
    are."""

    group: str
    offsets: tuple[TranslatedOffset, ...]
    not_mirrored: tuple[str, ...]
    deletes: bool
    done: bool = False


@dataclass(frozen=True)
class GroupMover:
    """Moves a consumer group to the target. ``source`` and ``target``: clients of both clusters; ``map``: the topic of
    the offset map."""

    group: str
    source: BrokerClient
    target: BrokerClient
    map: str = DEFAULT_MAP

    @property
    def _at_source(self) -> ConsumerGroup:
        return ConsumerGroup(self.source, self.group)

    @property
    def _at_target(self) -> ConsumerGroup:
        return ConsumerGroup(self.target, self.group)

    def move(
        self, *, apply: bool = False, delete: bool = False, overwrite: bool = False, wait_s: float = 0.0
    ) -> GroupMove:
        """Commit the group's offsets for the group of the same name at the target; without ``apply``, only check.

        1. The group must have no members at the source. Read its committed offsets there, once no transaction can
           change that: wait for ``wait_s`` seconds.
        2. Wait as long until the map covers it.
        3. The group must have no members at the target, and no other offsets for these topics there, unless
           ``overwrite`` is set.
        4. Check again that the group's offsets have not changed on either side. Commit.
        5. With ``delete``, delete the moved offsets at the source, so that nobody continues there by mistake, unless
           the group has committed there since. Its offsets for other topics stay.

        Raises KafkaError: EOS_GROUP_ACTIVE, EOS_GROUP_UNSUITABLE, EOS_MIRROR_GROUP_REFUSED,
        EOS_MIRROR_TARGET_RECREATED. Of an error in step 5, the message says that the group was moved.
        """
        self._check_no_members(self._at_source, "source")
        committed = self._at_source.committed(None, max(wait_s, _ANSWER_S))
        offsets, not_mirrored = self._translated(committed, wait_s)
        moved = self._moved(offsets)
        self._check_no_members(self._at_target, "target")
        at_target = self._check_target(offsets, overwrite=overwrite)
        if not apply:
            return GroupMove(self.group, offsets, not_mirrored, delete)
        self._check_source_unchanged(committed)
        self._check_no_members(self._at_target, "target")
        if self._check_target(offsets, overwrite=overwrite) != at_target:
            raise self._changed("target")
        self._at_target.commit(moved)
        if delete:
            self._delete(committed, offsets)
        return GroupMove(self.group, offsets, not_mirrored, delete, done=True)

    def _moved(self, offsets: Collection[TranslatedOffset]) -> PartitionOffsets:
        """Return the offsets to commit at the target. Raises KafkaError where two topics of the source have one target,
        and the group would have to be at two offsets there: it would miss rows of the one, or read rows of the other
        again."""
        moved: PartitionOffsets = {}
        topics: dict[TopicPartition, str] = {}
        for one in offsets:
            target = one.target.topic, one.partition
            other = topics.setdefault(target, one.topic)
            offset = moved.setdefault(one.target.topic, {}).setdefault(one.partition, one.target.offset)
            if offset != one.target.offset:
                raise stop(
                    "EOS_MIRROR_GROUP_REFUSED.joined_topics",
                    group=self.group,
                    topic=target[0],
                    partition=target[1],
                    one=f"{offset} by {other}",
                    two=f"{one.target.offset} by {one.topic}",
                )
        return moved

    def _delete(self, committed: PartitionOffsets, offsets: Collection[TranslatedOffset]) -> None:
        """Delete the moved offsets at the source, unless the group is in use there again. Its errors say that the group
        was moved."""
        try:
            self._check_source_unchanged(committed)
            self._at_source.delete(by_topic((one.topic, one.partition) for one in offsets))
        except EosError as error:
            raise error.reworded(f"{error.message} {phrase('moved')}", error.hint, **error.parameters) from None

    def _check_source_unchanged(self, committed: PartitionOffsets) -> None:
        self._check_no_members(self._at_source, "source")
        if self._at_source.committed(None) != committed:
            raise self._changed("source")

    def _check_no_members(self, group: ConsumerGroup, side: str) -> None:
        lost = "or offsets that they commit later are lost, or rows read twice"
        group.check_inactive(lost, at=f" at the {side}", to_commit=side == "target")

    def _translated(
        self, committed: PartitionOffsets, wait_s: float
    ) -> tuple[tuple[TranslatedOffset, ...], tuple[str, ...]]:
        """Return the offsets of the topics that are mirrored, once the map covers them; and the topics that are not."""
        cluster = cluster_id(self.source)
        origins = origins_from(self.target, self.map, cluster)
        mirrored = {origin.source for origin in origins}
        wanted = {
            (topic, p): offset
            for topic, offsets in sorted(committed.items())
            for p, offset in sorted(offsets.items())
            if topic in mirrored
        }
        if not wanted:
            raise stop("EOS_GROUP_UNSUITABLE.mirror", group=self.group)
        topics = describe_topics(self.source, {topic for topic, _ in wanted}, missing_ok=True)
        translator = _Translator(self.source, self.target, self.map, cluster, topics, origins, wanted)
        for _ in retrying(wait_s):
            if translator.update():
                break
        translated = translator.translated()
        for (topic, p), (begin, end) in translator.gaps().items():
            raise stop(
                "EOS_MIRROR_GROUP_REFUSED.not_mirrored",
                topic=topic,
                partition=p,
                offset=wanted[topic, p],
                begin=begin,
                end=end,
                group=self.group,
            )
        return translated, tuple(sorted(topic for topic in committed if topic not in mirrored))

    def _check_target(self, offsets: Collection[TranslatedOffset], *, overwrite: bool) -> PartitionOffsets:
        """Return the group's offsets at the target. Raises KafkaError and TopicError if it cannot continue there."""
        there = describe_topics(self.target, {one.target.topic for one in offsets}, missing_ok=True)
        for one in offsets:
            if one.target.topic not in there or there[one.target.topic].id != one.target.topic_id:
                raise stop("EOS_MIRROR_TARGET_RECREATED.group", topic=one.target.topic, source_topic=one.topic)
        self._check_rows_there(offsets)
        numbers = {name: range(topic.partitions) for name, topic in there.items()}
        committed = self._at_target.committed(numbers)
        unlike = [
            f"{one.target.topic}-{one.partition}"
            for one in offsets
            if committed.get(one.target.topic, {}).get(one.partition, one.target.offset) != one.target.offset
        ]
        if unlike and not overwrite:
            raise stop("EOS_MIRROR_GROUP_REFUSED.has_offsets", group=self.group, unlike=", ".join(unlike))
        return committed

    def _check_rows_there(self, offsets: Collection[TranslatedOffset]) -> None:
        """Check that each topic has one target, which still has all rows that the group has not read."""
        begins = begin_offsets(self.target, by_topic((one.target.topic, one.partition) for one in offsets))
        targets = {one.topic: one.target.topic for one in offsets}
        for one in offsets:
            if one.target.topic != targets[one.topic]:
                raise stop(
                    "EOS_MIRROR_GROUP_REFUSED.split_topics",
                    topic=one.topic,
                    place_topic=one.target.topic,
                    into=targets[one.topic],
                    group=self.group,
                )
            begin = begins[one.target.topic][one.partition]
            if one.target.offset < begin:
                raise stop(
                    "EOS_MIRROR_GROUP_REFUSED.behind",
                    group=self.group,
                    topic=one.target.topic,
                    partition=one.partition,
                    offset=one.target.offset,
                    begin=begin,
                )

    def _changed(self, side: str) -> EosError:
        return stop("EOS_MIRROR_GROUP_REFUSED.moves", group=self.group, side=side)


@dataclass(frozen=True)
class _TargetEnd:
    """Position of a reader of the target, if partition ``number`` of the map has no row of the source's
    partition up to ``map_end``."""

    position: TargetPosition
    number: int
    map_end: int


@dataclass
class _Translator:
    """Translates ``wanted``, offsets in partitions of the source, once the mirror has got there. ``topics``: topics of
    the source that exist now; ``origins``: of all that is mirrored from its ``cluster``."""

    source: BrokerClient
    target: BrokerClient
    map: str
    cluster: str
    topics: Mapping[str, Topic]
    origins: Sequence[Origin]
    wanted: Mapping[TopicPartition, int]
    _in_map: dict[TopicPartition, Translation | None] = field(default_factory=dict)
    _target_ends: dict[TopicPartition, _TargetEnd] = field(default_factory=dict)
    _positions: dict[TopicPartition, TargetPosition | None] = field(default_factory=dict)

    def update(self) -> bool:
        """Read the map for the unknown offsets; False if the mirror may still get to some of them."""
        lacking = self._read()
        idle = [each for each in lacking if each not in self._target_ends and self._has_no_row(each)]
        new = self._ends_for({each: self.wanted[each] for each in idle})
        self._target_ends |= new
        return not (self._read() if new else lacking)

    def translated(self) -> tuple[TranslatedOffset, ...]:
        """Return all wanted positions. Raises KafkaError (EOS_MIRROR_GROUP_REFUSED) for an offset that is not
        covered."""
        return tuple(TranslatedOffset(t, p, offset, self._position(t, p)) for (t, p), offset in self.wanted.items())

    def gaps(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first gap of each partition that a group would miss: offsets of the source that were never
        mirrored, between the wanted ones and others that were."""
        holes = {at: translation.holes for at, translation in self._in_map.items() if translation is not None}
        ahead = [at for at, known in holes.items() if known and known[-1][1] > self.wanted[at]]
        begins = begin_offsets(self.source, by_topic(ahead)) if ahead else {}
        firsts = {(t, p): max(self.wanted[t, p], begins[t][p]) for t, p in ahead}
        missed = {at: [hole for hole in holes[at] if hole[1] > first] for at, first in firsts.items()}
        return {at: gaps[0] for at, gaps in missed.items() if gaps}

    def _position(self, topic: str, partition: int) -> TargetPosition:
        position = self._positions.get((topic, partition))
        if position is None:
            translation = self._in_map[topic, partition]
            offset = self.wanted[topic, partition]
            raise not_covered(topic, partition, offset, [] if translation is None else [translation])
        return position

    def _read(self) -> list[TopicPartition]:
        """Read the map for the unknown positions; return the positions that are still unknown."""
        left = {source: offset for source, offset in self.wanted.items() if source not in self._positions}
        here = {source: [offset] for source, offset in left.items() if source[0] in self.topics}
        ids = {name: topic.id for name, topic in self.topics.items()}
        map_ = OffsetMap.read(self.target, self.cluster, here, self.map, ids=ids)
        lacking = []
        for (topic, p), offset in left.items():
            translation = self._in_map[topic, p] = map_.get(ids.get(topic, ""), p)
            end = self._target_ends.get((topic, p))
            if translation is not None and offset <= translation.end and not translation.rowless:
                self._positions[topic, p] = translation.positions[offset]
            elif self._has_no_row((topic, p)) and end is not None and map_.ends[end.number] >= end.map_end:
                self._positions[topic, p] = end.position
            else:
                lacking.append((topic, p))
        return lacking

    def _has_no_row(self, partition: TopicPartition) -> bool:
        translation = self._in_map[partition]
        return translation is None or translation.rowless

    def _ends_for(self, idle: Mapping[TopicPartition, int]) -> dict[TopicPartition, _TargetEnd]:
        """Return the ends of target partitions, for partitions of the source that have no row before this offset, and
        that a mirror follows: it has made their targets. They are empty, or all that the map has up to there are ranges
        without rows.

        Three reads, in this order. (1) The end of the target's partition, as far as it is stable. (2) The source ends
        at this offset, or the map has no row: so nothing before (1) in the target comes from behind the offset in the
        source, and nothing that is written later lies before (1). (3) The end of the map's partition: a transaction
        that is open at (1), and may have rows of before the offset, has its entries before (3); they are visible when
        the map is stable up to there.
        """
        targets = self._targets({topic for topic, _ in idle if topic in self.topics})
        here = {(t, p): o for (t, p), o in idle.items() if t in targets and p < targets[t][1]}
        ends = end_offsets(self.target, by_topic((targets[t][0].target, p) for t, p in here))
        empty = self._empty(here)
        if not empty:
            return {}
        count = map_partitions(self.target, self.map)
        numbers = {(t, p): partition_of(SourcePartition(self.cluster, self.topics[t].id, p), count) for t, p in empty}
        map_ends = end_offsets(self.target, {self.map: sorted(set(numbers.values()))}, "read_uncommitted")
        target_ends = {}
        for (topic, p), number in numbers.items():
            origin, _ = targets[topic]
            position = TargetPosition(origin.target, origin.target_id, p, ends[origin.target][p])
            target_ends[topic, p] = _TargetEnd(position, number, map_ends[self.map][number])
        return target_ends

    def _empty(self, idle: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the partitions of the source whose logs begin and end at this offset, and the partitions up to which
        the map has no row."""
        rowless = [at for at, offset in idle.items() if (each := self._in_map[at]) is not None and each.reaches(offset)]
        there = [(t, p) for t, p in idle if p < self.topics[t].partitions and (t, p) not in rowless]
        begins = begin_offsets(self.source, by_topic(there))
        ends = end_offsets(self.source, by_topic(there), "read_uncommitted")
        return rowless + [(t, p) for t, p in there if begins[t][p] == ends[t][p] == idle[t, p]]

    def _targets(self, topics: Collection[str]) -> dict[str, tuple[Origin, int]]:
        """Return the target of each topic and its number of partitions, if just one is still as the mirror has made
        it."""
        known = {topic: [o for o in self.origins if o.source_id == self.topics[topic].id] for topic in topics}
        there = describe_topics(self.target, {o.target for some in known.values() for o in some}, missing_ok=True)
        targets = {}
        for topic, origins in known.items():
            made = [o for o in origins if o.target in there and there[o.target].id == o.target_id]
            if len(made) == 1:
                targets[topic] = made[0], there[made[0].target].partitions
        return targets


@dataclass(frozen=True)
class MirrorPosition:
    """The offsets up to which the source is in the target, exclusive, in the form of 'startingOffsets'. ``batch``: the
    last micro-batch that the query has decided. ``unread``: partitions of which nothing was mirrored: they begin at
    their first offset. ``lost``: partitions with decided rows that brokers have lost: the new query writes these
    rows."""

    query: str
    batch: int
    offsets: PartitionOffsets
    unread: tuple[TopicPartition, ...]
    lost: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class MirrorQuery:
    """A mirror. ``operator``: of its query, whose ledger is on the target's cluster; ``source``: a client of the
    source's cluster; ``map``: the topic of the offset map. ``topics``: topics of the source; none means all that the
    map has of it."""

    operator: QueryOperator
    source: BrokerClient
    map: str
    topics: tuple[str, ...] = ()

    def position(self, *, settle: bool, wait_s: float) -> MirrorPosition:
        """1. It must be a mirror of this source, with this map, and the topics must be mirrored: before that is known,
           nothing is done to a query.
        2. Nothing of the query may be under way; with ``settle``, close it, and commit the rows that it has decided.
        3. Wait for ``wait_s`` seconds until readers of the map get to its end.
        4. Each partition ends where its entries do, which must be without gaps and of one target.
        5. With ``settle``, retire the query: if it were started again, it would mirror the rows of the new checkpoint.

        Raises EosError: CommandError (EOS_QUERY_UNKNOWN, EOS_MIRROR_NOT_SETTLED), TopicError, and
        KafkaError (EOS_MIRROR_POSITION_UNKNOWN) where the map does not show the position.
        """
        self._check_topics()
        decision = self._settled(settle=settle)
        if decision is None:
            if settle:
                self._retire(None)
            raise self._not_of(None)
        state = self._state(decision, wait_s)
        state.check_decided()
        unread = state.unread()
        self._check_unread(state, unread)
        position = state.position(self.query, unread)
        if settle:
            self._retire(decision)
        return position

    @property
    def query(self) -> str:
        """The id of the mirror's query."""
        return self.operator.query

    @property
    def _target(self) -> BrokerClient:
        """A client of the target's cluster."""
        return self.operator.cluster.client

    @cached_property
    def _cluster(self) -> str:
        """The id of the source's cluster."""
        return cluster_id(self.source)

    def _origins(self) -> list[Origin]:
        """Return the origins. Raises the errors of `origins_from`."""
        return origins_from(self._target, self.map, self._cluster)

    def _mirrored(self) -> set[str]:
        """Return the ids of the source's topics that the map has."""
        return {origin.source_id for origin in self._origins()}

    def _check_topics(self) -> None:
        """Raise KafkaError and TopicError where the map, or a topic that was asked for, is a wrong one."""
        mirrored = self._mirrored()
        for name, topic in describe_topics(self.source, self.topics).items():
            if topic.id not in mirrored:
                raise _unknown(name, None, _NEVER_MIRRORED)

    def _check_mirror(self, decision: Decision | None) -> None:
        """Raise KafkaError where the query is no mirror of this source, or has another map."""
        copied_from = copied_by(decision)
        if decision is None and self._has_claims():
            return
        if decision is None or copied_from is None or copied_from.cluster != self._cluster:
            raise self._not_of(decision)
        ids = dict(copied_from.topics)
        mirrored = self._mirrored()
        for r in (r for w in decision.written for r in ranges_of(w)):
            if ids[r.topic] not in mirrored:
                raise _unknown(r.topic, r.partition, f"micro-batch {decision.batch} has it, and the map nothing")

    def _has_claims(self) -> bool:
        """Return whether the query is a mirror of this source to this target, with this ledger and prefix, that may
        have decided nothing."""
        own = self.query, self.operator.cluster.ledger, self.operator.prefix
        claims = [c for c in read_claims(self._target, self.map) if (c.query, c.ledger, c.prefix) == own]
        there = describe_topics(self.source, {c.source for c in claims}, missing_ok=True)
        return any(c.source in there and there[c.source].id == c.source_id for c in claims)

    def _retire(self, decision: Decision | None) -> None:
        """Retire the query, so that no start can continue with its checkpoint. Raises CommandError if it has decided a
        micro-batch since."""
        if not self.operator.retire(decision):
            raise self._not_settled("a run has begun, and has decided a micro-batch")

    def _settled(self, *, settle: bool) -> Decision | None:
        """Return the last decision with its verdicts. Raises KafkaError, before anything is done, for a query that is
        no mirror of the source's cluster."""
        if settle and not self.operator.is_known() and self._has_claims():
            self._retire(None)
        head = self.operator.head()
        self._check_mirror(head.decision)
        if self.operator.is_settled(head):
            return head.decision
        if not settle:
            raise self._not_settled("a run of it may be alive, or its rows are not committed yet")
        ended = self.operator.recover(head)
        if not ended.is_complete:
            raise self._not_settled("a run has begun, or a transaction could not be ended")
        self._check_mirror(ended.decision)  # a run that was alive may have decided once more
        return ended.decision

    def _state(self, decision: Decision, wait_s: float) -> MirrorState:
        """Return the map up to its end, as an open transaction of another mirror would hide later records, and the
        topics that it speaks of."""
        origins = self._origins()
        names = self.topics or {origin.source for origin in origins}
        sources = describe_topics(self.source, names, missing_ok=not self.topics)
        partitions = {(name, p) for name, topic in sources.items() for p in range(topic.partitions)}
        partitions |= {(r.topic, r.partition) for w in decision.written for r in ranges_of(w)}
        if held_partition(self._target, self.map, wait_s) is not None:
            raise self._not_settled(f"another mirror's transaction has been open in {self.map} for {wait_s:.0f} s")
        map_ = OffsetMap.read(self._target, self._cluster, dict.fromkeys(partitions, ()), self.map)
        if not self.topics:
            sources = {name: topic for name, topic in sources.items() if name in map_.mirrored()}
        targets = describe_topics(self._target, {origin.target for origin in origins}, missing_ok=True)
        return MirrorState(map_, decision, sources, origins, targets)

    def _check_unread(self, state: MirrorState, unread: Sequence[TopicPartition]) -> None:
        """Raise KafkaError where the target has had records in a partition of which the map has nothing."""
        targets = {topic: state.target(topic) for topic, _ in unread}
        there = [(topic, p) for topic, p in unread if p < state.targets[targets[topic]].partitions]
        known = by_topic((targets[topic], p) for topic, p in there)
        ends = end_offsets(self._target, known, "read_uncommitted") if there else {}
        for topic, p in there:
            if ends[target := targets[topic]][p]:
                raise _unknown(topic, p, f"the map has nothing of it, but {target}-{p} has had records")

    def _not_settled(self, why: str) -> EosError:
        return stop("EOS_MIRROR_NOT_SETTLED", query=self.query, why=why)

    def _not_of(self, decision: Decision | None) -> EosError:
        copied = copied_by(decision)
        why = "its last decision, if any, has no copied rows"
        if copied is not None:
            why = f"it reads from cluster {copied.cluster}, but --source is {self._cluster}"
        return stop("EOS_MIRROR_POSITION_UNKNOWN.query", query=self.query, why=why)


@dataclass(frozen=True)
class MirrorState:
    """State of a mirror, by the map, the ledger and both clusters. ``sources``: its topics by name, as they are now;
    ``targets``: the topics that ``origins`` name, as they are now."""

    map_: OffsetMap
    decision: Decision
    sources: Mapping[str, Topic]
    origins: Sequence[Origin]
    targets: Mapping[str, Topic]

    def check_decided(self) -> None:
        """Raise KafkaError unless the map has the last decision's rows, without the lost ones: else it is not this
        query's map."""
        copied_from = copied_by(self.decision)
        assert copied_from is not None
        ids = dict(copied_from.topics)
        for w in self.decision.written:
            for r in ranges_of(w):
                translation = self.map_.get(ids[r.topic], r.partition)
                end = r.start if translation is None else translation.end
                if end != (r.end if w.verdict is Verdict.COMMITTED else r.start):
                    batch = f"micro-batch {self.decision.batch} has {r.start} to {r.end}"
                    raise _unknown(r.topic, r.partition, f"the map ends at offset {end}, but {batch}")

    def target(self, topic: str) -> str:
        """Return the name of the one target of a topic. Targets that are gone do not count if there is another one: the
        topic was mirrored again, with another prefix. Raises TopicError if all are gone, and KafkaError if there never
        were any, or several are left."""
        targets = {(o.target, o.target_id) for o in self.origins if o.source_id == self.sources[topic].id}
        left = [name for name, id_ in targets if name in self.targets and self.targets[name].id == id_]
        if not targets or len(left) > 1:
            raise _unknown(topic, None, "it was mirrored to several topics" if targets else _NEVER_MIRRORED)
        if not left:
            gone = min(name for name, _ in targets)
            raise stop("EOS_MIRROR_TARGET_RECREATED.start", topic=gone, and_recreated=" or recreated", name=topic)
        return left[0]

    def unread(self) -> list[TopicPartition]:
        """Return the partitions that are neither in the map nor in the last decision."""
        return [
            (name, p)
            for name, topic in sorted(self.sources.items())
            for p in range(topic.partitions)
            if self.map_.get(topic.id, p) is None and (name, p) not in self._lost()
        ]

    def position(self, query: str, unread: Sequence[TopicPartition]) -> MirrorPosition:
        """Return the position. Raises the errors of `target`, and KafkaError where rows were mirrored twice, or are
        missing in between."""
        offsets: PartitionOffsets = {}
        for name, topic in sorted(self.sources.items()):
            target_id = self.targets[self.target(name)].id
            offsets[name] = {
                p: EARLIEST if (name, p) in unread else self._end(name, p, target_id) for p in range(topic.partitions)
            }
        lost = tuple(sorted(partition for partition in self._lost() if partition[0] in self.sources))
        return MirrorPosition(query, self.decision.batch, offsets, tuple(unread), lost)

    def _end(self, topic: str, partition: int, target_id: str) -> int:
        translation = self.map_.get(self.sources[topic].id, partition)
        if translation is None:
            return self._lost()[topic, partition]
        if translation.doubled:
            raise _unknown(topic, partition, "its rows were mirrored more than once")
        if translation.holes:
            begin, end = translation.holes[0]
            raise _unknown(topic, partition, f"the map has nothing of the offsets {begin} to {end}")
        if set(translation.targets) - {target_id}:
            raise _unknown(topic, partition, "it was mirrored to several topics")
        return translation.end

    def _lost(self) -> dict[TopicPartition, int]:
        """Return the first offsets of decided rows that brokers have lost."""
        return {(r.topic, r.partition): r.start for w in self.decision.lost for r in reversed(ranges_of(w))}


def _unknown(topic: str, partition: int | None, why: str) -> EosError:
    """Return the error for unknown offsets. ``partition``: None for the topic as a whole."""
    name = topic if partition is None else f"{topic}-{partition}"
    return stop("EOS_MIRROR_POSITION_UNKNOWN.place", topic=topic, place=name, why=why)
