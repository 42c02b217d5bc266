"""Names of the headers that a dead letter has behind its record's own: names of Kafka Streams (KIP-1034), and our own
for the partition that a row was meant for and the cluster that it was read from, which Kafka Streams has no names for.

They begin with `EXCEPTION`. Headers before its last occurrence are the record's own, whichever names they have.
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

#: How the names of such headers begin, also in later versions.
PREFIXES = ("__streams.errors.", "__spark_eos.source.", "__spark_eos.target.")
