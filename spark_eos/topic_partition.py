"""Partitions and their offsets as plain tuples and dicts, for all packages; the clients' own classes are not shared."""

from __future__ import annotations

#: The name of a topic and the number of a partition.
TopicPartition = tuple[str, int]
#: Topic → partition → offset.
PartitionOffsets = dict[str, dict[int, int]]
