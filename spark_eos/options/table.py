"""Every option: type, default, doc, and who may set it.

The tables ``SOURCE`` and ``SINK`` are the one place where options are declared; parsing, the error for an unknown key
and the options page of the docs are made from them.
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
from spark_eos.options.values import parse_boolean, parse_positive, parse_text

DEFAULT_LEDGER_TOPIC = "__spark_eos_ledger"
DEFAULT_PREFIX = "spark-eos"


@dataclass(frozen=True)
class Option:
    """One option of one side. ``attribute`` is its field in the parsed dataclass.

    ``parity``: "same" or "better: why" where Spark's built-in source has the option, too.
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
        "Topics to read, separated by commas. Of `subscribe`, `subscribePattern` and `assign` exactly one is needed.",
        "same",
    ),
    Option(
        "subscribePattern",
        "subscribe_pattern",
        parse_pattern,
        "(one of three)",
        "A regular expression: topics in whose names it is found, now and later. Internal topics and ledgers are not.",
        "same, in Python's syntax; one that matches nothing is an error at the start",
    ),
    Option(
        "assign",
        "assign",
        parse_assign,
        "(one of three)",
        'Partitions to read, as JSON: `{"flights":[0,1]}`.',
        "better: a partition that is not there is an error, not left out",
    ),
    Option(
        "startingOffsets",
        "starting_offsets",
        parse_start,
        "latest; for a batch earliest",
        'Where a new query begins: `earliest`, `latest`, `group`, or JSON such as `{"flights":{"0":23,"1":-2}}` '
        "(-2 is earliest, -1 latest). `group` takes over from what the group of `kafka.group.id` has committed. "
        "A restarted query goes on from its checkpoint.",
        "better: `group`; offsets are checked against the topic; a query that dies before its first commit goes on "
        "where it began",
    ),
    Option(
        "startingTimestamp",
        "starting_timestamp",
        parse_time,
        "(none)",
        "Begin at the first record of this time or later, in milliseconds since 1970. Goes before "
        "`startingOffsetsByTimestamp`, and that before `startingOffsets`.",
        "same",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "starting_times",
        parse_times,
        "(none)",
        'The same with a time for each partition: `{"flights":{"0":1700000000000,"1":1700000000000}}`.',
        "same",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "else_latest",
        parse_strategy,
        "error",
        "Where a partition has no record of the starting time or later: `error`, or `latest` to begin at its end.",
        "same",
    ),
    Option(
        "endingOffsets",
        "ending_offsets",
        parse_end,
        "latest",
        "Batch only: where it ends, exclusive: `latest` or JSON (-1 is latest).",
        "better: an end that is not stable is an error; the built-in one waits, or loses the batch",
    ),
    Option(
        "endingTimestamp",
        "ending_timestamp",
        parse_time,
        "(none)",
        "Batch only: end before the first record of this time or later; at the end where there is none. "
        "Goes before `endingOffsetsByTimestamp`, and that before `endingOffsets`.",
        "same; refused for a stream, where the built-in source ignores it",
    ),
    Option(
        "endingOffsetsByTimestamp",
        "ending_times",
        parse_times,
        "(none)",
        "The same with a time for each partition.",
        "same",
    ),
    Option(
        "failOnDataLoss",
        "fail_on_data_loss",
        parse_boolean,
        "true",
        "`true`: offsets that are needed and gone stop the query (EOS_SOURCE_DATA_LOSS). `false`: a warning, a count "
        "in the query's progress, and the query goes on with what there is.",
        "better: names topic, partition and both offsets; knows topics that were created anew by their id; counts",
    ),
    Option(
        "includeHeaders",
        "include_headers",
        parse_boolean,
        "false",
        "Add the column `headers`: array<struct<key: string, value: binary>>, null for a record without.",
        "same",
    ),
    Option(
        "minPartitions",
        "min_partitions",
        parse_positive,
        "(one task for each partition, or for some of few rows)",
        "At least about this many tasks, by dividing the larger ranges. The order within a partition then holds within "
        "each task only. 1: one for each partition, however few rows wait there.",
        "same; without it, partitions of few rows share a task",
    ),
    Option(
        "maxRecordsPerPartition",
        "max_records_per_partition",
        parse_positive,
        "(no limit)",
        "At most this many offsets for a task, by dividing ranges.",
        "same",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "max_offsets_per_trigger",
        parse_positive,
        "(no limit)",
        "At most this many offsets in a micro-batch, shared out over the partitions by what waits in each.",
        "same",
    ),
    Option(
        "minOffsetsPerTrigger",
        "min_offsets_per_trigger",
        parse_positive,
        "(no minimum)",
        "Wait until this many offsets are there, but not longer than `maxTriggerDelay`. The first micro-batch after a "
        "start does not wait, nor do those of Trigger.AvailableNow.",
        "better: AvailableNow leaves nothing unread",
    ),
    Option("maxTriggerDelay", "max_trigger_delay_s", parse_duration, "15m", "See `minOffsetsPerTrigger`.", "same"),
    Option(
        "fetchOffset.numRetries",
        "offset_tries",
        parse_positive,
        "3",
        "How often a partition that seems to end before the query's offset is looked at before that counts as data "
        "loss: a new leader may know less for a moment.",
        "better: an unanswered question is repeated for a minute, whatever is set here",
    ),
    Option(
        "fetchOffset.retryIntervalMs",
        "offset_retry_ms",
        parse_positive,
        "1000",
        "How long to wait between those looks.",
        "same",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "poll_timeout_ms",
        parse_positive,
        "60000",
        "After how long without a record, or any other sign of life, a task fails.",
        "same; the built-in source's default is spark.network.timeout, 120 s",
    ),
    Option(
        "groupIdPrefix",
        "group_id_prefix",
        parse_text,
        "(none)",
        "Begin of the consumers' group id, for the ACL of groups. No group is joined.",
        "same",
    ),
    Option(
        "openTransaction.warnMs",
        "open_transaction_warn_ms",
        parse_positive,
        "60000",
        "How long an open transaction may hold a partition's last stable offset before the log names it.",
    ),
)

#: Options of the built-in source that do something else here, or nothing: (name, what, why).
ELSEWHERE = (
    (
        "kafka.group.id",
        "better",
        "the group whose offsets `startingOffsets` = `group` takes; no group is joined, so that queries do not disturb "
        "each other, and nothing needs a warning",
    ),
    (
        "kafka.isolation.level",
        "better",
        "`read_committed` is the default, and the end of a batch is then the last stable offset; `read_uncommitted` on "
        "request",
    ),
    (
        "kafka.auto.offset.reset, kafka.key.deserializer, kafka.value.deserializer, kafka.enable.auto.commit, "
        "kafka.interceptor.classes",
        "same",
        "refused",
    ),
    (
        "Trigger.Continuous",
        "absent",
        "a Python data source cannot; the interval of small micro-batches comes close",
    ),
    (
        "spark.kafka.consumer.cache.*",
        "absent",
        "each Python worker keeps two consumers, which end with it",
    ),
    (
        "spark.kafka.clusters.* (delegation tokens)",
        "absent",
        "librdkafka takes no tokens from Spark; use `kafka.sasl.*`",
    ),
)

SINK = (
    Option(
        "topic", "topic", parse_text, "(the `topic` column)", "Topic for every row; goes before the `topic` column."
    ),
    Option(
        "checkpointLocation",
        "checkpoint_location",
        parse_text,
        "(none)",
        "The query's checkpoint. Spark needs it in any case; set as an option of the query, the sink can use it too.",
    ),
    Option(
        "transactionalIdPrefix",
        "prefix",
        parse_text,
        DEFAULT_PREFIX,
        "Begin of every transactional id, for the ACL of the transactional ids. A query keeps it for good.",
    ),
    Option(
        "transaction.timeout.ms",
        "transaction_timeout_ms",
        parse_positive,
        "(the broker's `transaction.max.timeout.ms`)",
        "How long a task's transaction may stay open; a stage and its commit must fit into it.",
    ),
    Option(
        "ledger.topic",
        "ledger_topic",
        parse_text,
        DEFAULT_LEDGER_TOPIC,
        "Compacted topic that holds every query's last decision. Created when it is missing. It belongs to the "
        "checkpoint: a query that is given another one knows nothing of what it has decided.",
    ),
    Option(
        "ledger.begin",
        "ledger_begin",
        parse_boolean,
        "false",
        "`true`, for one start: begin a ledger for a checkpoint that is in mid-life, as when "
        "[moving over](moving.md) from another sink. A micro-batch that this one has left under way is written again.",
    ),
    Option(
        "offsets.group.id",
        "group_id",
        parse_text,
        "(none)",
        "Consumer group that gets the source's offsets, in the transaction that decides the micro-batch. "
        "Needs `checkpointLocation` as an option of the query.",
    ),
)

_OWNED = "spark-eos sets it"
#: ``kafka.*`` keys that a user may not set, with what to do instead.
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
}
