"""Every option: type, default, documentation, and how it compares with Spark's built-in ``kafka`` format.

Options are declared in the tables ``SOURCE`` and ``SINK`` only. Parsing, the error for an unknown key and
docs/options.md use them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_eos.options.bounds import (
    parse_duration,
    parse_end,
    parse_start,
    parse_strategy,
    parse_time,
)
from spark_eos.options.offsets import parse_times
from spark_eos.options.selection import parse_assign, parse_pattern, parse_subscribe
from spark_eos.options.values import parse_batch, parse_boolean, parse_millis, parse_positive, parse_size, parse_text

DEFAULT_LEDGER_TOPIC = "__spark_eos_ledger"
DEFAULT_PREFIX = "spark-eos"


@dataclass(frozen=True)
class Option:
    """One option of one side. ``attribute`` is its field in the parsed dataclass.

    ``parity``: "same" or "better: why" if the same side of Spark's built-in ``kafka`` format also has the option.
    """

    name: str
    attribute: str
    parse: Callable[[str, str], Any]
    default: str
    doc: str
    parity: str = ""


SOURCE = (
    Option(
        "subscribe",
        "subscribe",
        parse_subscribe,
        "(one of three)",
        "Topics to read, separated by commas. Exactly one of `subscribe`, `subscribePattern` and `assign` is required.",
        "same",
    ),
    Option(
        "subscribePattern",
        "subscribe_pattern",
        parse_pattern,
        "(one of three)",
        "Regular expression. Reads every topic whose name contains a match, including topics created later. Internal "
        "topics and [topics of spark-eos](sink.md#topics-that-are-not-for-rows) are excluded.",
        "same, but in Python's syntax; a pattern that matches no topic when the query starts is an error",
    ),
    Option(
        "assign",
        "assign",
        parse_assign,
        "(one of three)",
        'Partitions to read, as JSON: `{"flights":[0,1]}`.',
        "better: a partition that does not exist is an error instead of being left out",
    ),
    Option(
        "startingOffsets",
        "starting_offsets",
        parse_start,
        "latest; for a batch earliest",
        'Where a new query begins: `earliest`, `latest`, `group`, or JSON such as `{"flights":{"0":23,"1":-2}}` '
        "(-2 is earliest, -1 latest). `group` begins at the committed offsets of the group `kafka.group.id`. "
        "A restarted query continues from its checkpoint.",
        "better: `group`; offsets are validated against the topic; a query that fails before its first commit restarts "
        "where it began",
    ),
    Option(
        "startingTimestamp",
        "starting_timestamp",
        parse_time,
        "(none)",
        "Begin at the first record with this timestamp or a later one, in milliseconds since 1970. Takes precedence "
        "over `startingOffsetsByTimestamp`, which takes precedence over `startingOffsets`.",
        "same",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "starting_times",
        parse_times,
        "(none)",
        'As `startingTimestamp`, but for each partition: `{"flights":{"0":1700000000000,"1":1700000000000}}`.',
        "same",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "else_latest",
        parse_strategy,
        "error",
        "What to do if a partition has no record with the starting timestamp or a later one: `error`, or `latest` to "
        "begin at its end.",
        "same",
    ),
    Option(
        "endingOffsets",
        "ending_offsets",
        parse_end,
        "latest",
        "Batch only: where to end, exclusive. `latest` or JSON (-1 is latest).",
        "better: an end beyond the last stable offset is an error; the built-in source waits, or loses the batch",
    ),
    Option(
        "endingTimestamp",
        "ending_timestamp",
        parse_time,
        "(none)",
        "Batch only: end before the first record with this timestamp or a later one; at the end of a partition that "
        "has none. Takes precedence over `endingOffsetsByTimestamp`, which takes precedence over `endingOffsets`.",
        "same; refused for a stream, where the built-in source ignores it",
    ),
    Option(
        "endingOffsetsByTimestamp",
        "ending_times",
        parse_times,
        "(none)",
        "Batch only: as `endingTimestamp`, but for each partition.",
        "same",
    ),
    Option(
        "failOnDataLoss",
        "fail_on_data_loss",
        parse_boolean,
        "true",
        "Whether to stop the query if offsets that it needs are gone (EOS_SOURCE_DATA_LOSS). If `false`, it logs "
        "a warning, counts the loss in its progress, and continues with the records that are left.",
        "better: names the topic, the partition and both offsets; recognises recreated topics by their id; counts; a "
        "topic that comes back is continued at its old offset",
    ),
    Option(
        "includeHeaders",
        "include_headers",
        parse_boolean,
        "false",
        "Add the column `headers`: array<struct<key: string, value: binary>>, null for a record without headers.",
        "same",
    ),
    Option(
        "minPartitions",
        "min_partitions",
        parse_positive,
        "(one task for each partition; partitions with few rows share one)",
        "Minimum number of tasks, approximately: larger ranges are split, and the order of a partition's rows then "
        "holds within each task only. 1 means one task for each partition, however few rows it has.",
        "same; without it, partitions with few rows share a task",
    ),
    Option(
        "maxRecordsPerPartition",
        "max_records_per_partition",
        parse_positive,
        "(no limit)",
        "Maximum number of offsets for one task. Larger ranges are split.",
        "same",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "max_offsets_per_trigger",
        parse_positive,
        "(no limit)",
        "Maximum number of offsets in one micro-batch, divided among the partitions in proportion to their backlog.",
        "same",
    ),
    Option(
        "maxBytesPerTrigger",
        "max_bytes_per_trigger",
        parse_size,
        "(no limit)",
        "About how many bytes one micro-batch reads, as they are in the log (compressed): a number, or one with a "
        "unit, such as `64m` or `1g`. At least one record batch of each partition. Together with "
        "`maxOffsetsPerTrigger`, the smaller limit counts.",
    ),
    Option(
        "minOffsetsPerTrigger",
        "min_offsets_per_trigger",
        parse_positive,
        "(no minimum)",
        "Minimum number of offsets in one micro-batch; the query waits for them for up to `maxTriggerDelay`. The first "
        "micro-batch after a start does not wait, nor does Trigger.AvailableNow.",
        "better: AvailableNow leaves nothing unread",
    ),
    Option(
        "maxTriggerDelay",
        "max_trigger_delay_s",
        parse_duration,
        "15m",
        "Maximum time to wait for `minOffsetsPerTrigger`.",
        "same",
    ),
    Option(
        "fetchOffset.numRetries",
        "offset_tries",
        parse_positive,
        "3",
        "How many times to look at a partition that appears to end before the query's offset, before that counts as "
        "data loss: a new leader may lag behind for a moment.",
        "better: a request without an answer is repeated for one minute, regardless of this option",
    ),
    Option(
        "fetchOffset.retryIntervalMs",
        "offset_retry_ms",
        parse_millis,
        "1000",
        "Milliseconds between these attempts.",
        "same",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "poll_timeout_ms",
        parse_millis,
        "60000",
        "Milliseconds without a record or any other sign of progress after which a task fails.",
        "same; the built-in source's default is spark.network.timeout, 120 s",
    ),
    Option(
        "maxDecompressedBytes",
        "max_decompressed_bytes",
        parse_size,
        "128m",
        "Maximum size of a decompressed record batch: a number of bytes, or one with a unit, up to `2046m`. A larger "
        "batch, which could exhaust a task's memory, is an error (EOS_SOURCE_BATCH_TOO_LARGE).",
    ),
    Option(
        "groupIdPrefix",
        "group_id_prefix",
        parse_text,
        "(none)",
        "Prefix of the consumers' group id, for ACLs on groups. No group is joined.",
        "same",
    ),
    Option(
        "openTransaction.warnMs",
        "open_transaction_warn_ms",
        parse_millis,
        "60000",
        "Milliseconds that an open transaction may hold back a partition's last stable offset before it is logged.",
    ),
    Option(
        "offsets.group.id",
        "report_group",
        parse_text,
        "(none)",
        "Consumer group to which the source commits the query's offsets, in the background, [whatever the sink]"
        "(source.md#a-group-for-lag-tools). The query does not read them.",
    ),
)

SINK = (
    Option(
        "topic",
        "topic",
        parse_text,
        "(the `topic` column)",
        "Topic for all rows. Takes precedence over the `topic` column.",
        "better: the topic must exist; it is checked before anything is written",
    ),
    Option(
        "deadLetters.topic",
        "dead_letters",
        parse_text,
        "(none: such rows are an error)",
        "[Dead-letter topic](dead-letters.md) for rows that brokers permanently reject (for example, too large for "
        "their topic).",
    ),
    Option(
        "checkpointLocation",
        "checkpoint_location",
        parse_text,
        "(none)",
        "The query's checkpoint. Spark needs it in any case; if it is an option of the query, the sink can use it too.",
        "same; a location set for the session is not passed to a Python sink",
    ),
    Option(
        "transactionalIdPrefix",
        "prefix",
        parse_text,
        DEFAULT_PREFIX,
        "Prefix of every transactional id, for ACLs on transactional ids. It cannot change during the life of a query.",
    ),
    Option(
        "transaction.timeout.ms",
        "transaction_timeout_ms",
        parse_millis,
        "(the broker's `transaction.max.timeout.ms`)",
        "Maximum time in milliseconds that a task's transaction stays open. It must cover a stage and its commit.",
    ),
    Option(
        "transaction.two.phase.commit",
        "two_phase",
        parse_boolean,
        "false",
        "Whether the query's transactions never expire (KIP-939). Requires [brokers that offer it]"
        "(two-phase-commit.md). `transaction.timeout.ms` then only limits how long a row may wait to be written.",
    ),
    Option(
        "ledger.topic",
        "ledger_topic",
        parse_text,
        DEFAULT_LEDGER_TOPIC,
        "Compacted topic that holds the last decision of every query. Created if it does not exist. Do not change it "
        "later.",
    ),
    Option(
        "ledger.begin",
        "ledger_begin",
        parse_batch,
        "(none)",
        "Number of the micro-batch with which a ledger begins for a checkpoint that is already in use, as when "
        "[moving over](moving.md) from another sink. It has no effect on later micro-batches. After a loss of the "
        "ledger topic, [compare output and input](stopped.md#the-ledger) first.",
    ),
    Option(
        "offsets.group.id",
        "group_id",
        parse_text,
        "(none)",
        "Consumer group to which the source's offsets are committed, in the transaction that decides the micro-batch. "
        "Requires `checkpointLocation` as an option of the query.",
    ),
)

_OWNED = "spark-eos sets it"
#: ``kafka.*`` keys that a user cannot set, and the way to set each instead.
SOURCE_OWNED = {
    "auto.offset.reset": "use the option 'startingOffsets'",
    "enable.auto.commit": "offsets are kept in the checkpoint",
    "enable.auto.offset.store": "offsets are kept in the checkpoint",
    "key.deserializer": "key and value are read as binary; cast them in the query",
    "value.deserializer": "key and value are read as binary; cast them in the query",
    "interceptor.classes": "there is no JVM consumer",
    "enable.partition.eof": _OWNED,
}
SINK_OWNED = {
    "transactional.id": "use the option 'transactionalIdPrefix'",
    "transaction.timeout.ms": "use the option 'transaction.timeout.ms', without 'kafka.'",
    "enable.idempotence": "transactional producers are idempotent",
    "enable.gapless.guarantee": _OWNED,
    "acks": "transactional producers use acks=all",
    "request.required.acks": "transactional producers use acks=all",
    "key.serializer": "key and value are written as they are; cast them in the query",
    "value.serializer": "key and value are written as they are; cast them in the query",
    "interceptor.classes": "there is no JVM producer",
    "group.id": "use the option 'offsets.group.id'",
    "statistics.interval.ms": _OWNED,
    "delivery.report.only.error": _OWNED,
    "reconnect.backoff.ms": _OWNED,
    "message.timeout.ms": _OWNED + " from 'transaction.timeout.ms'",
    "delivery.timeout.ms": _OWNED + " from 'transaction.timeout.ms'",
    "batch.num.messages": "use 'kafka.batch.size', the bytes of a record batch",
    "message.max.bytes": "a row may be as large as the topic's max.message.bytes; 'kafka.batch.size' is for batches",
    "max.request.size": "a row may be as large as the topic's max.message.bytes; 'kafka.batch.size' is for batches",
}
