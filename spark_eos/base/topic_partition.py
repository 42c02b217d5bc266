"""Partitions, their offsets and ranges of these, as plain values for all packages; clients' classes are not shared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

#: The name of a topic and the number of a partition.
TopicPartition = tuple[str, int]
#: Topic → partition → offset.
PartitionOffsets = dict[str, dict[int, int]]


@dataclass(frozen=True, order=True)
class OffsetRange:
    """Offsets of one partition, from ``start`` up to, not including, ``end``.

    The other fields tell which log the offsets belong to. They do not count when ranges are compared. ``topic_id``, as
    Kafka's tools print it; empty where any topic of that name will do. ``first_epoch``, ``last_epoch``: the leader
    epochs of the records before ``start`` and before ``end``; no record of the range has a later one than
    ``most_epoch``. An epoch that is not known is -1.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = field(default="", compare=False)
    first_epoch: int = field(default=-1, compare=False)
    last_epoch: int = field(default=-1, compare=False)
    most_epoch: int = field(default=-1, compare=False)

    @property
    def size(self) -> int:
        """The number of offsets. There may be fewer rows."""
        return self.end - self.start

    def cut(self, start: int, end: int) -> OffsetRange:
        """Return the part from ``start`` to ``end``, with the epochs that are known of it."""
        first = self.first_epoch if start == self.start else -1
        last = self.last_epoch if end == self.end else -1
        return replace(self, start=start, end=end, first_epoch=first, last_epoch=last)


#: Names that Kafka accepts for a topic, apart from "." and "..".
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_topic_name(text: str) -> bool:
    """Return whether a topic can have this name."""
    return _TOPIC.fullmatch(text) is not None and text not in (".", "..")


#: How the names of the topics begin that spark-eos keeps for itself, unless users choose other ones.
OWN_NAMES = "__spark_eos_"


def name_of_partition(partition: TopicPartition) -> str:
    """Return a partition in the form of Kafka's tools: ``topic-0``."""
    return f"{partition[0]}-{partition[1]}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return topic → its partition numbers, in the order of ``partitions``."""
    numbers: dict[str, list[int]] = {}
    for topic, partition in partitions:
        numbers.setdefault(topic, []).append(partition)
    return numbers


def flat(numbers: Mapping[str, Mapping[int, int]]) -> dict[TopicPartition, int]:
    """Return nested numbers, such as offsets, by ``(topic, partition)``. The inverse of `nested`."""
    return {(topic, p): number for topic, partitions in numbers.items() for p, number in partitions.items()}


def nested(numbers: Mapping[TopicPartition, int]) -> PartitionOffsets:
    """Return the numbers by topic and partition. The inverse of `flat`."""
    offsets: PartitionOffsets = {}
    for (topic, p), number in numbers.items():
        offsets.setdefault(topic, {})[p] = number
    return offsets
