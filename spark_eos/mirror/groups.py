"""Moves a consumer group from the source of a mirror to its target, so that it goes on where it was."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from spark_eos.errors import KafkaError, TopicError
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

        Raises KafkaError: EOS_GROUP_ACTIVE, EOS_GROUP_WITHOUT_OFFSETS, EOS_MIRROR_NOT_COVERED,
        EOS_MIRROR_GROUP_HAS_OFFSETS, EOS_MIRROR_GROUP_MOVES, EOS_MIRROR_GROUP_BEHIND, EOS_MIRROR_TARGET_RECREATED.
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
            raise KafkaError(
                "EOS_GROUP_ACTIVE",
                f"Consumer group {self.group} has {len(members)} active member(s) at the {side}: "
                f"{', '.join(sorted(set(members)))}.",
                hint="Stop these consumers first: what they commit later would be lost, or read twice.",
                group=self.group,
            )

    def _steps(self, committed: PartitionOffsets, wait_s: float) -> tuple[tuple[Step, ...], tuple[str, ...]]:
        """Of all that is mirrored, when the map covers it; and the topics that are not."""
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
            raise KafkaError(
                "EOS_GROUP_WITHOUT_OFFSETS",
                f"Consumer group {self.group} has no committed offsets for topics that are mirrored to this cluster.",
                hint="Check the group's name, the clusters, and the topic of the offset map.",
                group=self.group,
            )
        topics = describe_topics(self.source, {topic for topic, _ in wanted}, missing_ok=True)
        positions = Positions(self.source, self.target, self.map, cluster, topics, origins)
        for _ in retrying(wait_s):
            if not positions.look(wanted):
                break
        steps = tuple(Step(t, p, offset, positions.place(t, p, offset)) for (t, p), offset in wanted.items())
        for (topic, p), (begin, end) in positions.holes(wanted).items():
            raise KafkaError(
                "EOS_MIRROR_NOT_COVERED",
                f"Offsets {begin} to {end} of {topic}-{p} were never mirrored: consumer group {self.group}, which is "
                f"at offset {wanted[topic, p]}, would miss them at the target.",
                hint="Let the group read on at the source, up to the end of these at least; then move it.",
                topic=topic,
                partition=p,
                offset=wanted[topic, p],
            )
        return steps, left

    def _check_targets(self, steps: Collection[Step], *, overwrite: bool) -> PartitionOffsets:
        """Raise KafkaError and TopicError where the group cannot go on there; what it has committed there."""
        there = describe_topics(self.target, {step.place.topic for step in steps}, missing_ok=True)
        for step in steps:
            place = step.place
            if place.topic not in there or there[place.topic].id != place.topic_id:
                raise TopicError(
                    "EOS_MIRROR_TARGET_RECREATED",
                    f"The target topic {place.topic} was deleted or recreated since {step.topic} was mirrored to it.",
                    hint="What the group has not read yet is not there. Mirror the topic again first.",
                    topic=place.topic,
                )
        self._check_whole(steps)
        numbers = {name: range(topic.partitions) for name, topic in there.items()}
        has = committed_offsets(self.target, self.group, numbers)
        unlike = [
            f"{step.place.topic}-{step.partition}"
            for step in steps
            if has.get(step.place.topic, {}).get(step.partition, step.place.offset) != step.place.offset
        ]
        if unlike and not overwrite:
            raise KafkaError(
                "EOS_MIRROR_GROUP_HAS_OFFSETS",
                f"Consumer group {self.group} has other offsets at the target for {', '.join(unlike)}.",
                hint="It has read there already. With --overwrite, it goes on from where it is at the source, and may "
                "read rows once more, or never.",
                group=self.group,
            )
        return has

    def _check_whole(self, steps: Collection[Step]) -> None:
        """Each topic goes to one, and what the group has not read is still there."""
        begins = begin_offsets(self.target, by_topic((step.place.topic, step.partition) for step in steps))
        into = {step.topic: step.place.topic for step in steps}
        for step in steps:
            place = step.place
            if place.topic != into[step.topic]:
                raise KafkaError(
                    "EOS_MIRROR_NOT_COVERED",
                    f"Partitions of {step.topic} were mirrored to different topics, {place.topic} and "
                    f"{into[step.topic]}: no topic has all that consumer group {self.group} has not read.",
                    hint="Let the group read on at the source.",
                    topic=step.topic,
                )
            begin = begins[place.topic][step.partition]
            if place.offset < begin:
                raise KafkaError(
                    "EOS_MIRROR_GROUP_BEHIND",
                    f"Consumer group {self.group} would go on at offset {place.offset} of {place.topic}-"
                    f"{step.partition}, which begins at offset {begin} by now: what it has not read has expired there.",
                    hint="Nothing was changed. Let the group read on at the source if that has the rows; or give up "
                    "what has expired, by moving its offset there forward with kafka-consumer-groups "
                    "--reset-offsets, and try again.",
                    group=self.group,
                    topic=place.topic,
                    partition=step.partition,
                )

    def _moves(self, side: str, done: str = "Nothing was changed.") -> KafkaError:
        return KafkaError(
            "EOS_MIRROR_GROUP_MOVES",
            f"The offsets of consumer group {self.group} at the {side} have changed while it was looked at.",
            hint=f"{done} Stop the consumer that commits them; if another command has moved the group, it is done.",
            group=self.group,
        )
