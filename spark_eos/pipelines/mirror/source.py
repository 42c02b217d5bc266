"""The reader of a mirror: that of a copy, which also claims and checks topics before they are in the offset log, and
prepares their targets before a micro-batch's tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from spark_eos.base.log import logger
from spark_eos.base.metrics_events import NOWHERE, Events
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.checkpoint.offset_log import Position
from spark_eos.pipelines.copy.source import RangeStreamReader
from spark_eos.pipelines.mirror.cleaner import MapCleaner
from spark_eos.pipelines.mirror.owner import Followed, Ownership
from spark_eos.pipelines.mirror.plan import MirrorClients, MirrorPlan
from spark_eos.pipelines.mirror.topics import TargetTopics
from spark_eos.source.left_topics import differ


class MirrorStreamReader(RangeStreamReader):
    """Plans the ranges of a mirror, on the driver."""

    def __init__(self, plan: MirrorPlan, events: Events = NOWHERE) -> None:
        super().__init__(plan, events)
        self._mirror = plan
        self._released = False  # the claims on topics that were taken off the mirror while it did not run

    @cached_property
    def _clients(self) -> MirrorClients:
        return MirrorClients.for_plan(self._mirror)

    @cached_property
    def _targets(self) -> TargetTopics:
        return TargetTopics(self._mirror, self._clients)

    @cached_property
    def _ownership(self) -> Ownership:
        return Ownership(self._mirror, self._clients)

    @cached_property
    def _cleaner(self) -> MapCleaner:
        return MapCleaner(self._clients.source, self._clients.target, self._mirror.targets.map)

    def _check_planned(
        self, before: Position | None, end: Position, ranges: Sequence[OffsetRange], *, is_new: bool
    ) -> None:
        """Raise TopicError for topics that are refused, and KafkaError for topics that another mirror owns, before they
        are in the offset log: the same checkpoint continues without them."""
        if is_new:
            self._targets.check_planned(end.offsets, {r.topic for r in ranges})
        self._own(before, end)
        if not is_new and self._watch.pinned:
            self._cleaner.finish()  # Spark ends this process when there is nothing left

    def _own(self, before: Position | None, end: Position) -> None:
        """Own the topics that are mirrored. ``before``: where the query continues in them; None if it begins."""
        there = self._watch.topics().partitions.keys()
        self._ownership.hold(_followed(there, before, self._beginning, end))
        if before is not None and not self._released:
            self._ownership.release(there)
            self._released = True

    def stop(self) -> None:
        """Stop the cleaner, as the query has ended."""
        if "_cleaner" in vars(self):
            self._cleaner.stop()

    def _dropped_on_purpose(self, topics: Collection[str]) -> Collection[str]:
        """Return the topics that were taken off the mirror because they close a circle: leaving out their rows is no
        loss."""
        circles = self._targets.circles(topics)
        for topic in sorted(circles):
            logger.warning("Topic %s, whose rows come from the target's cluster, is no longer mirrored.", topic)
        return circles

    def _prepare(self, ranges: Sequence[OffsetRange], end: Position) -> None:
        read = {r.topic for r in ranges}
        followed = end.offsets.keys() & self._watch.topics().partitions.keys()
        if read:
            self._ownership.hold(Followed({topic: end.ids.get(topic, "") for topic in read}))
        if read or followed:  # else there is no topic to mirror yet
            self._targets.prepare(followed, read)
            self._cleaner.start_if_due()


def _followed(there: Collection[str], before: Position | None, initial: Position, end: Position) -> Followed:
    """Return the topics that the offset log will have, if they exist (``there``). ``before``: its last position; None
    if it has none, as the query begins at ``initial``. Up to ``end``, nothing is read of a topic that has just
    appeared, or has come back; one that was recreated begins at offset 0."""
    known = Position({}) if before is None else before
    ids = {topic: end.ids.get(topic, "") for topic in end.offsets if topic in there}
    new, at = set(), {}
    for topic, id_ in ids.items():
        offsets, left = known.offsets.get(topic), known.left.get(topic)
        if offsets is not None and not differ(known.ids.get(topic), id_):
            at[topic] = offsets
        elif left is not None and not differ(left.id, id_):
            at[topic] = end.offsets[topic]
        else:
            new.add(topic)
            start = initial.offsets.get(topic) if before is None else None
            recreated = None if offsets is None else dict.fromkeys(end.offsets[topic], 0)
            at[topic] = start or recreated or end.offsets[topic]
    return Followed(ids, at, new)
