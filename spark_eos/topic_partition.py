"""Partitions and their offsets as plain tuples and dicts, for all packages; the clients' own classes are not shared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: The name of a topic and the number of a partition.
TopicPartition = tuple[str, int]
#: Topic → partition → offset.
PartitionOffsets = dict[str, dict[int, int]]

#: How the names of the topics begin that spark-eos keeps for itself, unless users choose other ones.
OWN_NAMES = "__spark_eos_"


def name_of_place(place: TopicPartition) -> str:
    """A partition in the form of Kafka's tools: ``topic-0``."""
    return f"{place[0]}-{place[1]}"


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions, by topic, in their order."""
    found: dict[str, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return found


def flat(numbers: Mapping[str, Mapping[int, int]]) -> dict[TopicPartition, int]:
    """The number of each partition, by topic and partition in one."""
    return {(topic, p): number for topic, partitions in numbers.items() for p, number in partitions.items()}


def nested(numbers: Mapping[TopicPartition, int]) -> PartitionOffsets:
    """The inverse of `flat`."""
    found: PartitionOffsets = {}
    for (topic, p), number in numbers.items():
        found.setdefault(topic, {})[p] = number
    return found
