"""Partitions and their offsets as plain tuples and dicts, for all packages; the clients' own classes are not shared."""

from __future__ import annotations

from collections.abc import Iterable

#: The name of a topic and the number of a partition.
TopicPartition = tuple[str, int]
#: Topic → partition → offset.
PartitionOffsets = dict[str, dict[int, int]]

#: How the names of the topics begin that spark-eos keeps for itself, unless users choose other ones.
OWN_NAMES = "__spark_eos_"


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions, by topic, in their order."""
    found: dict[str, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return found
