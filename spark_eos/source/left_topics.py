"""Topics that a query leaves, because its selection or the cluster no longer has them, and that may come back.

The offset log keeps where the query was in them (`Position.left`). So their loss is reported once, not at each start,
and a topic that comes back is read on from there, unless it has another id: then it is a new topic. These offsets never
expire: a topic may be hidden for a while, by a broker or by a right that was withdrawn, and without its offset it would
be read twice. Pure functions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from spark_eos.base.topic_partition import PartitionOffsets
from spark_eos.checkpoint.offset_log import LeftAt, Position, TopicIds


def differ(one: str | None, other: str | None) -> bool:
    """Return whether both ids are known, and differ."""
    return one is not None and other is not None and one != other


def left_behind(position: Position, there: Mapping[str, Collection[int]], ids: TopicIds) -> Position:
    """Return the position with the partitions that do not exist moved to ``left``. ``there``, ``ids``: the existing
    topics.

    A topic that was recreated leaves nothing: its old log does not come back.
    """
    offsets: PartitionOffsets = {}
    left = dict(position.left)
    for topic, known in position.offsets.items():
        stay = {p: at for p, at in known.items() if p in there.get(topic, ())}
        gone = {p: at for p, at in known.items() if p not in stay}
        if stay:
            offsets[topic] = stay
        id_ = position.ids.get(topic)
        if gone and not differ(id_, ids.get(topic)):
            before = left.get(topic)
            same = before is not None and not differ(before.id, id_)
            earlier = before if before is not None and same else LeftAt(id_, {})
            epochs = {p: epoch for p, epoch in earlier.epochs.items() if p not in gone}
            epochs |= {p: epoch for p, epoch in position.epochs.get(topic, {}).items() if p in gone}
            left[topic] = LeftAt(id_, {**earlier.offsets, **gone}, epochs)
    return replace(position, offsets=offsets, left=left)


def come_back(left: Mapping[str, LeftAt], there: Mapping[str, Collection[int]], ids: TopicIds) -> PartitionOffsets:
    """Return the partitions that were left and exist again, with the offsets at which they were left."""
    back = {
        topic: {p: at for p, at in was.offsets.items() if p in there.get(topic, ())}
        for topic, was in left.items()
        if not differ(was.id, ids.get(topic))
    }
    return {topic: offsets for topic, offsets in back.items() if offsets}


def still_left(left: Mapping[str, LeftAt], read: PartitionOffsets, ids: TopicIds) -> dict[str, LeftAt]:
    """Return ``left`` without partitions that are read again, and without topics whose name has another id now."""
    result: dict[str, LeftAt] = {}
    for topic, was in left.items():
        if topic in read and differ(was.id, ids.get(topic)):
            continue
        offsets = {p: at for p, at in was.offsets.items() if p not in read.get(topic, {})}
        if offsets:
            epochs = {p: epoch for p, epoch in was.epochs.items() if p in offsets}
            result[topic] = replace(was, offsets=offsets, epochs=epochs)
    return result
