"""The formats of offsets in the source and in Spark's offset log.

In the source: ``{topic: {partition: offset}}``, ends exclusive. In the offset log: the JSON of the built-in source,
with partitions as strings, plus the ids of the topics under a key that cannot be a topic::

    {"#cluster": {"id": "5L6…"}, "#ids": {"flights": "6xQ…"}, "flights": {"0": 23, "1": 5}}

``"#cluster"`` is the id of the cluster, where brokers have one: the same offsets are other rows on another one.
``"#group": {"id": "…"}`` is there, too, if the source reports to a consumer group, so that the sink can tell;
``"#direct": {}`` of queries of the direct way, so that whoever sees their progress knows that Spark's rows are ranges;
and of topics that the query no longer reads, in case they come back, ``"#left": {"carriers": {"id": "…", "offsets":
{"0": 7}}}``.
Spark compares offsets as JSON text: the order of keys is fixed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_eos.topic_partition import PartitionOffsets

#: Topic → its id. A recreated topic has a different id.
TopicIds = dict[str, str]

#: Keys of the offset log with this prefix are not topics.
MARK = "#"
_IDS = MARK + "ids"
_GROUP = MARK + "group"
_CLUSTER = MARK + "cluster"
_DIRECT = MARK + "direct"
_LEFT = MARK + "left"


@dataclass(frozen=True)
class LeftAt:
    """Where a query has left partitions of a topic that it no longer reads: partition → offset. ``id``: the topic's."""

    id: str | None
    offsets: dict[int, int]


@dataclass(frozen=True)
class Position:
    """The position of a query: one line of the offset log. ``ids`` is empty if the log has none. ``group`` and
    ``direct`` are only written. ``cluster``: the id of the cluster, where it is noted. ``left``: topics, and partitions
    of topics, that the selection no longer includes or the cluster no longer has."""

    offsets: PartitionOffsets
    ids: TopicIds = field(default_factory=dict)
    group: str | None = None
    cluster: str | None = None
    direct: bool = False
    left: dict[str, LeftAt] = field(default_factory=dict)


def to_spark(position: Position) -> dict[str, dict[str, Any]]:
    """The line for the offset log, with topics sorted by name and partitions by number."""
    offsets = position.offsets
    ids = {topic: position.ids[topic] for topic in sorted(offsets) if topic in position.ids}
    topics = {topic: {str(p): offsets[topic][p] for p in sorted(offsets[topic])} for topic in sorted(offsets)}
    noted = {_CLUSTER: position.cluster, _GROUP: position.group}
    marks: dict[str, dict[str, Any]] = {name: {"id": value} for name, value in noted.items() if value}
    if position.direct:
        marks[_DIRECT] = {}
    if position.left:
        marks[_LEFT] = {topic: _to_json(position.left[topic]) for topic in sorted(position.left)}
    return {**marks, _IDS: ids, **topics} if ids else {**marks, **topics}


def from_spark(logged: Mapping[str, Mapping[str, Any]]) -> Position:
    """The position from a line that `to_spark` or the built-in source has written."""
    topics = {topic: partitions for topic, partitions in logged.items() if not topic.startswith(MARK)}
    offsets = {topic: {int(p): offset for p, offset in partitions.items()} for topic, partitions in topics.items()}
    cluster = logged.get(_CLUSTER, {}).get("id")
    left = {
        topic: LeftAt(found.get("id"), {int(p): offset for p, offset in found["offsets"].items()})
        for topic, found in logged.get(_LEFT, {}).items()
    }
    return Position(offsets, dict(logged.get(_IDS, {})), cluster=cluster, left=left)


def _to_json(left: LeftAt) -> dict[str, Any]:
    offsets = {str(p): left.offsets[p] for p in sorted(left.offsets)}
    return {"offsets": offsets} if left.id is None else {"id": left.id, "offsets": offsets}
