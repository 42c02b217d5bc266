"""Names of partitioners, as in librdkafka. `kafka.producer.partitioner` implements them."""

from __future__ import annotations

#: librdkafka's default.
CONSISTENT_RANDOM = "consistent_random"

#: The default of Java's clients.
MURMUR2_RANDOM = "murmur2_random"

PARTITIONERS = frozenset(
    [CONSISTENT_RANDOM, "consistent", "fnv1a", "fnv1a_random", "murmur2", MURMUR2_RANDOM, "random"]
)

#: The default for new queries.
DEFAULT_PARTITIONER = MURMUR2_RANDOM
