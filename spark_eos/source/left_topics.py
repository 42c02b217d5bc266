"""Topics that a query leaves, because its selection or the cluster no longer has them, and that may come back.

Where the query was in them stays in the offset log, beside the position (`Position.left`): so they are lost once, and
not again at each start. A topic that comes back is read on from there. Only one with another id is a new topic, which
has a beginning of its own. It is never forgotten by time: a cluster, or a right that was withdrawn, may hide a topic
for a while, and what is forgotten would be read twice. Pure functions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from spark_eos.checkpoint.offset_log import LeftAt, Position, TopicIds
from spark_eos.topic_partition import PartitionOffsets


def differ(one: str | None, other: str | None) -> bool:
    """Whether two ids are known and are not the same."""
    return one is not None and other is not None and one != other


def left_behind(position: Position, there: Mapping[str, Collection[int]], ids: TopicIds) -> Position:
    """The position without the partitions that are not there, noted as left. ``ids``: of the topics that are there.

    Of a topic that was created anew nothing is left to come back to.
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
    """The partitions that were left and are there again, with the offsets at which they were left."""
    found = {
        topic: {p: at for p, at in was.offsets.items() if p in there.get(topic, ())}
        for topic, was in left.items()
        if not differ(was.id, ids.get(topic))
    }
    return {topic: offsets for topic, offsets in found.items() if offsets}


def still_left(left: Mapping[str, LeftAt], read: PartitionOffsets, ids: TopicIds) -> dict[str, LeftAt]:
    """What was left, without what is read: the same partitions, or a topic of that name with another id."""
    result: dict[str, LeftAt] = {}
    for topic, was in left.items():
        if topic in read and differ(was.id, ids.get(topic)):
            continue
        offsets = {p: at for p, at in was.offsets.items() if p not in read.get(topic, {})}
        if offsets:
            epochs = {p: epoch for p, epoch in was.epochs.items() if p in offsets}
            result[topic] = replace(was, offsets=offsets, epochs=epochs)
    return result
