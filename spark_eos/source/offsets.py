"""Offsets as the user writes them, as Spark keeps them, and as the source counts with them.

Inside: ``{topic: {partition: offset}}``, ends exclusive. In the offset log: the built-in source's JSON with partitions
as texts, and beside them the ids of the topics, under a key that no topic can have::

    {"#ids": {"flights": "6xQ…"}, "flights": {"0": 23, "1": 5}}

Spark compares offsets as JSON text: the order of keys is fixed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_eos.options.offsets import Offsets

#: Topic → its id. A topic that is deleted and created again has another one.
TopicIds = dict[str, str]

#: Keys of the offset log that begin so are no topics.
MARK = "#"
_IDS = MARK + "ids"


@dataclass(frozen=True)
class Position:
    """How far a query has come: what one line of the offset log says. ``ids`` is empty where the log has none."""

    offsets: Offsets
    ids: TopicIds = field(default_factory=dict)


def to_spark(position: Position) -> dict[str, dict[str, Any]]:
    """For the offset log: topics in the order of their names, partitions in the order of their numbers."""
    offsets = position.offsets
    ids = {topic: position.ids[topic] for topic in sorted(offsets) if topic in position.ids}
    topics = {topic: {str(p): offsets[topic][p] for p in sorted(offsets[topic])} for topic in sorted(offsets)}
    return {_IDS: ids, **topics} if ids else topics


def from_spark(logged: Mapping[str, Mapping[str, Any]]) -> Position:
    """What `to_spark` made, or what the built-in source wrote into an offset log."""
    topics = {topic: partitions for topic, partitions in logged.items() if not topic.startswith(MARK)}
    offsets = {topic: {int(p): offset for p, offset in partitions.items()} for topic, partitions in topics.items()}
    return Position(offsets, dict(logged.get(_IDS, {})))
