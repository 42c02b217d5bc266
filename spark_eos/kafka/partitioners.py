"""The names of the rules by which keys are dealt to partitions, as librdkafka has them. `kafka.producer.partitioner`
applies them."""

from __future__ import annotations

#: librdkafka's default.
CONSISTENT_RANDOM = "consistent_random"

#: That of Java's clients.
MURMUR2_RANDOM = "murmur2_random"

PARTITIONERS = frozenset(
    [CONSISTENT_RANDOM, "consistent", "fnv1a", "fnv1a_random", "murmur2", MURMUR2_RANDOM, "random"]
)

#: For queries that begin now and whose user has chosen none.
DEFAULT_PARTITIONER = MURMUR2_RANDOM
