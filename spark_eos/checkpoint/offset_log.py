"""The formats of offsets in the source and in Spark's offset log.

In the source: ``{topic: {partition: offset}}``, ends exclusive. In the offset log: the JSON of the built-in source,
with partitions as strings, plus the ids of the topics under a key that cannot be a topic::

    {"#cluster": {"id": "5L6…"}, "#ids": {"flights": "6xQ…"}, "flights": {"0": 23, "1": 5}}

``"#cluster"`` is the id of the cluster, where brokers have one: the same offsets are other rows on another one.
``"#group": {"id": "…"}`` is there, too, if the source reports to a consumer group, so that the sink can tell;
``"#copy": {}`` of copies, so that whoever sees their progress knows that Spark's rows are ranges;
and of topics that the query no longer reads, in case they come back, ``"#left": {"carriers": {"id": "…", "offsets":
{"0": 7}}}``. ``"#epochs": {"flights": {"0": 4}}`` has the leader epochs of the records before these offsets, where they
are known, by which a log that was cut and has grown again is recognised (`spark_eos.source.epochs`).
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
_COPY = MARK + "copy"
_LEFT = MARK + "left"
_EPOCHS = MARK + "epochs"


@dataclass(frozen=True)
class LeftAt:
    """Where a query has left partitions of a topic that it no longer reads: partition → offset. ``id``: the topic's;
    ``epochs``: partition → leader epoch of the record before that offset, where it is known."""

    id: str | None
    offsets: dict[int, int]
    epochs: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Position:
    """The position of a query: one line of the offset log. ``ids`` is empty if the log has none. ``group`` and
    ``copy`` are only written. ``cluster``: the id of the cluster, where it is noted. ``left``: topics, and partitions
    of topics, that the selection no longer includes or the cluster no longer has. ``epochs``: of the records before
    the offsets, where they are known."""

    offsets: PartitionOffsets
    ids: TopicIds = field(default_factory=dict)
    group: str | None = None
    cluster: str | None = None
    copy: bool = False
    left: dict[str, LeftAt] = field(default_factory=dict)
    epochs: PartitionOffsets = field(default_factory=dict)


def to_spark(position: Position) -> dict[str, dict[str, Any]]:
    """The line for the offset log, with topics sorted by name and partitions by number."""
    offsets = position.offsets
    ids = {topic: position.ids[topic] for topic in sorted(offsets) if topic in position.ids}
    topics = {topic: _by_text(offsets[topic]) for topic in sorted(offsets)}
    epochs = {
        topic: _by_text({p: epoch for p, epoch in position.epochs[topic].items() if p in offsets[topic] and epoch >= 0})
        for topic in sorted(offsets.keys() & position.epochs.keys())
    }
    noted = {_CLUSTER: position.cluster, _GROUP: position.group}
    marks: dict[str, dict[str, Any]] = {name: {"id": value} for name, value in noted.items() if value}
    if position.copy:
        marks[_COPY] = {}
    if position.left:
        marks[_LEFT] = {topic: _to_json(position.left[topic]) for topic in sorted(position.left)}
    if any(epochs.values()):
        marks[_EPOCHS] = {topic: found for topic, found in epochs.items() if found}
    return {**marks, _IDS: ids, **topics} if ids else {**marks, **topics}


def from_spark(logged: Mapping[str, Mapping[str, Any]]) -> Position:
    """The position from a line that `to_spark` or the built-in source has written."""
    topics = {topic: partitions for topic, partitions in logged.items() if not topic.startswith(MARK)}
    offsets = {topic: _by_number(partitions) for topic, partitions in topics.items()}
    epochs = {topic: _by_number(found) for topic, found in logged.get(_EPOCHS, {}).items()}
    cluster = logged.get(_CLUSTER, {}).get("id")
    left = {
        topic: LeftAt(found.get("id"), _by_number(found["offsets"]), _by_number(found.get("epochs", {})))
        for topic, found in logged.get(_LEFT, {}).items()
    }
    return Position(offsets, dict(logged.get(_IDS, {})), cluster=cluster, left=left, epochs=epochs)


def _to_json(left: LeftAt) -> dict[str, Any]:
    id_ = {} if left.id is None else {"id": left.id}
    epochs = {"epochs": _by_text(left.epochs)} if left.epochs else {}
    return {**id_, "offsets": _by_text(left.offsets), **epochs}


def _by_text(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(p): numbers[p] for p in sorted(numbers)}


def _by_number(numbers: Mapping[str, int]) -> dict[int, int]:
    return {int(p): number for p, number in numbers.items()}
