"""Names of the headers that a dead letter has behind its record's own: those of Kafka Streams (KIP-1034), and own ones
for what Kafka Streams has no name for: the partition that a row was meant for, and the cluster that it was read from.

They begin with `EXCEPTION`. What stands before its last occurrence is the record's own, whatever its name is.
"""

#: Why the record is a letter: the name of the exception, and its message.
EXCEPTION, MESSAGE = "__streams.errors.exception", "__streams.errors.message"
#: Where it was read.
SOURCE_TOPIC, SOURCE_PARTITION = "__streams.errors.topic", "__streams.errors.partition"
SOURCE_OFFSET = "__streams.errors.offset"
#: The id of the cluster of this topic.
SOURCE_CLUSTER = "__spark_eos.source.cluster"
#: Where a broker refused it.
TARGET_TOPIC, TARGET_PARTITION = "__spark_eos.target.topic", "__spark_eos.target.partition"

#: How the names of such headers begin, also of those that later versions write.
PREFIXES = ("__streams.errors.", "__spark_eos.source.", "__spark_eos.target.")
