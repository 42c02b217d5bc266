"""Moves a consumer group from the source of a mirror to its target, so that it goes on where it was."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.groups import active_members, commit_offsets, committed_offsets, delete_offsets
from spark_eos.kafka.admin.topics import begin_offsets, cluster_id, describe_topics
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.mirror.map_topic import DEFAULT_MAP
from spark_eos.mirror.origins import origins_from
from spark_eos.mirror.translating import Positions, Step
from spark_eos.retry import retrying
from spark_eos.topic_partition import PartitionOffsets, by_topic


@dataclass(frozen=True)
class Move:
    """What is to be done, or was. ``left``: topics of the group that are not mirrored, and stay as they are."""

    group: str
    steps: tuple[Step, ...]
    left: tuple[str, ...]
    deletes: bool
    done: bool = False


@dataclass(frozen=True)
class Mover:
    """``source`` and ``target``: how both clusters are reached; ``map``: the topic of the offset map."""

    group: str
    source: KafkaProperties
    target: KafkaProperties
    map: str = DEFAULT_MAP

    def move(self, *, apply: bool = False, delete: bool = False, overwrite: bool = False, wait_s: float = 0.0) -> Move:
        """Give the group's offsets to the group of the same name on the target's cluster; only with ``apply``.

        1. Nobody may be in the group at the source; what it has committed there is read when no transaction is about to
           change it.
        2. Wait until the map covers that, for ``wait_s`` seconds.
        3. Nobody may be in the group at the target, and it has no other offsets for these topics there, unless they are
           to be overwritten.
        4. The group has not moved meanwhile, on either side. Commit.
        5. With ``delete``, what was moved is deleted at the source, so that nobody goes on there by mistake, unless it
           has moved there since. The group's offsets for other topics stay.

        Raises KafkaError: EOS_GROUP_ACTIVE, EOS_GROUP_UNSUITABLE, EOS_MIRROR_GROUP_REFUSED,
        EOS_MIRROR_GROUP_REFUSED, EOS_MIRROR_TARGET_RECREATED.
        """
        self._check_empty(self.source, "source")
        committed = committed_offsets(self.source, self.group, None)
        steps, left = self._steps(committed, wait_s)
        self._check_empty(self.target, "target")
        has = self._check_targets(steps, overwrite=overwrite)
        move = Move(self.group, steps, left, delete)
        if not apply:
            return move
        self._check_still(committed)
        self._check_empty(self.target, "target")
        if self._check_targets(steps, overwrite=overwrite) != has:
            raise self._moves("target")
        offsets: PartitionOffsets = {}
        for step in steps:
            offsets.setdefault(step.place.topic, {})[step.partition] = step.place.offset
        commit_offsets(self.target, self.group, offsets)
        if delete:
            self._check_still(committed, "It was moved, and is not deleted at the source.")
            delete_offsets(self.source, self.group, by_topic((step.topic, step.partition) for step in steps))
        return Move(self.group, steps, left, delete, done=True)

    def _check_still(self, committed: PartitionOffsets, done: str = "Nothing was changed.") -> None:
        """Raise KafkaError unless the group is at the source where it was."""
        self._check_empty(self.source, "source")
        if committed_offsets(self.source, self.group, None) != committed:
            raise self._moves("source", done)

    def _check_empty(self, kafka: KafkaProperties, side: str) -> None:
        members = active_members(kafka, self.group, to_commit=side == "target")
        if members:
            raise stop(
                "EOS_GROUP_ACTIVE.mirror",
                group=self.group,
                count=len(members),
                side=side,
                members=", ".join(sorted(set(members))),
            )

    def _steps(self, committed: PartitionOffsets, wait_s: float) -> tuple[tuple[Step, ...], tuple[str, ...]]:
        """The steps for all that is mirrored, once the map covers it; and the topics that are not mirrored."""
        cluster = cluster_id(self.source)
        origins = origins_from(self.target, self.map, cluster)
        mirrored = {origin.source for origin in origins}
        left = tuple(sorted(topic for topic in committed if topic not in mirrored))
        wanted = {
            (topic, p): offset
            for topic, offsets in sorted(committed.items())
            for p, offset in sorted(offsets.items())
            if topic in mirrored
        }
        if not wanted:
            raise stop("EOS_GROUP_UNSUITABLE.mirror", group=self.group)
        topics = describe_topics(self.source, {topic for topic, _ in wanted}, missing_ok=True)
        positions = Positions(self.source, self.target, self.map, cluster, topics, origins)
        for _ in retrying(wait_s):
            if not positions.look(wanted):
                break
        steps = tuple(Step(t, p, offset, positions.place(t, p, offset)) for (t, p), offset in wanted.items())
        for (topic, p), (begin, end) in positions.holes(wanted).items():
            raise stop(
                "EOS_MIRROR_GROUP_REFUSED.not_mirrored",
                topic=topic,
                partition=p,
                offset=wanted[topic, p],
                begin=begin,
                end=end,
                group=self.group,
            )
        return steps, left

    def _check_targets(self, steps: Collection[Step], *, overwrite: bool) -> PartitionOffsets:
        """Raise KafkaError and TopicError where the group cannot go on there; what it has committed there."""
        there = describe_topics(self.target, {step.place.topic for step in steps}, missing_ok=True)
        for step in steps:
            place = step.place
            if place.topic not in there or there[place.topic].id != place.topic_id:
                raise stop("EOS_MIRROR_TARGET_RECREATED.group", topic=place.topic, source_topic=step.topic)
        self._check_whole(steps)
        numbers = {name: range(topic.partitions) for name, topic in there.items()}
        has = committed_offsets(self.target, self.group, numbers)
        unlike = [
            f"{step.place.topic}-{step.partition}"
            for step in steps
            if has.get(step.place.topic, {}).get(step.partition, step.place.offset) != step.place.offset
        ]
        if unlike and not overwrite:
            raise stop("EOS_MIRROR_GROUP_REFUSED.has_offsets", group=self.group, unlike=", ".join(unlike))
        return has

    def _check_whole(self, steps: Collection[Step]) -> None:
        """Each topic goes to one, and what the group has not read is still there."""
        begins = begin_offsets(self.target, by_topic((step.place.topic, step.partition) for step in steps))
        into = {step.topic: step.place.topic for step in steps}
        for step in steps:
            place = step.place
            if place.topic != into[step.topic]:
                raise stop(
                    "EOS_MIRROR_GROUP_REFUSED.split_topics",
                    topic=step.topic,
                    place_topic=place.topic,
                    into=into[step.topic],
                    group=self.group,
                )
            begin = begins[place.topic][step.partition]
            if place.offset < begin:
                raise stop(
                    "EOS_MIRROR_GROUP_REFUSED.behind",
                    group=self.group,
                    topic=place.topic,
                    partition=step.partition,
                    offset=place.offset,
                    begin=begin,
                )

    def _moves(self, side: str, done: str = "Nothing was changed.") -> EosError:
        return stop("EOS_MIRROR_GROUP_REFUSED.moves", group=self.group, side=side, done=done)
