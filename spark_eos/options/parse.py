"""Every option: type, default, doc, and who may set it.

The tables ``SOURCE`` and ``SINK`` are the one place where options are declared; parsing, the error for an unknown key
and the options page of the docs are made from them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from spark_eos.errors import OptionError
from spark_eos.log import logger
from spark_eos.options.bounds import (
    ByTime,
    Limit,
    check_order,
    parse_duration,
    parse_end,
    parse_start,
    parse_strategy,
    parse_time,
    refuse_latest_start,
)
from spark_eos.options.selection import Selection, parse_assign, parse_pattern, parse_subscribe
from spark_eos.source.offsets import parse_times

DEFAULT_LEDGER_TOPIC = "__spark_eos_ledger"
DEFAULT_PREFIX = "spark-eos"

Isolation = Literal["read_committed", "read_uncommitted"]

#: Parts of Kafka property names whose values must never be printed.
_SECRET_MARKS = (
    "password",
    "passphrase",
    "secret",
    "jaas",
    "key.pem",
    "keystore.key",
    "ssl_key",
    "oauthbearer.config",
    "token",
)


class KafkaProperties(Mapping[str, str]):
    """The user's ``kafka.*`` options, without that prefix; prints secrets as ``***``."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KafkaProperties) and self._values == other._values

    def __repr__(self) -> str:
        return repr({k: "***" if is_secret(k) else v for k, v in self._values.items()})

    @property
    def bootstrap_servers(self) -> str:
        return self._values["bootstrap.servers"]


def is_secret(key: str) -> bool:
    """Whether the value of this Kafka property must not be printed."""
    return any(mark in key.lower() for mark in _SECRET_MARKS)


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise OptionError("EOS_OPTION_EMPTY", f"Option '{name}' is empty.", hint="Give it a value or leave it out.")
    return value.strip()


def _positive(name: str, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise OptionError(
            "EOS_OPTION_NOT_A_NUMBER",
            f"Option '{name}' is '{value}'.",
            hint="It takes a whole number of at least 1.",
            option=name,
            value=value,
        )
    return number


def _boolean(name: str, value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise OptionError(
            "EOS_OPTION_NOT_A_BOOLEAN", f"Option '{name}' is '{value}'.", hint="It takes true or false.", option=name
        )
    return lowered == "true"


def _isolation(value: str) -> Isolation:
    lowered = value.strip().lower()
    if lowered == "read_committed":
        return "read_committed"
    if lowered == "read_uncommitted":
        return "read_uncommitted"
    raise OptionError(
        "EOS_OPTION_ISOLATION",
        f"Option 'kafka.isolation.level' is '{value}'.",
        hint="It takes read_committed, which is the default, or read_uncommitted.",
    )


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
        _boolean,
        "true",
        "`true`: offsets that are needed and gone stop the query (EOS_SOURCE_DATA_LOSS). `false`: a warning, a count "
        "in the query's progress, and the query goes on with what there is.",
        "better: names topic, partition and both offsets; knows topics that were created anew by their id; counts",
    ),
    Option(
        "includeHeaders",
        "include_headers",
        _boolean,
        "false",
        "Add the column `headers`: array<struct<key: string, value: binary>>, null for a record without.",
        "same",
    ),
    Option(
        "minPartitions",
        "min_partitions",
        _positive,
        "(one task for each partition, or for some of few rows)",
        "At least about this many tasks, by dividing the larger ranges. The order within a partition then holds within "
        "each task only. 1: one for each partition, however few rows wait there.",
        "same; without it, partitions of few rows share a task",
    ),
    Option(
        "maxRecordsPerPartition",
        "max_records_per_partition",
        _positive,
        "(no limit)",
        "At most this many offsets for a task, by dividing ranges.",
        "same",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "max_offsets_per_trigger",
        _positive,
        "(no limit)",
        "At most this many offsets in a micro-batch, shared out over the partitions by what waits in each.",
        "same",
    ),
    Option(
        "minOffsetsPerTrigger",
        "min_offsets_per_trigger",
        _positive,
        "(no minimum)",
        "Wait until this many offsets are there, but not longer than `maxTriggerDelay`. The first micro-batch after a "
        "start does not wait, nor do those of Trigger.AvailableNow.",
        "better: AvailableNow leaves nothing unread",
    ),
    Option("maxTriggerDelay", "max_trigger_delay_s", parse_duration, "15m", "See `minOffsetsPerTrigger`.", "same"),
    Option(
        "fetchOffset.numRetries",
        "offset_tries",
        _positive,
        "3",
        "How often a partition that seems to end before the query's offset is looked at before that counts as data "
        "loss: a new leader may know less for a moment.",
        "better: an unanswered question is repeated for a minute, whatever is set here",
    ),
    Option(
        "fetchOffset.retryIntervalMs",
        "offset_retry_ms",
        _positive,
        "1000",
        "How long to wait between those looks.",
        "same",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "poll_timeout_ms",
        _positive,
        "60000",
        "After how long without a record, or any other sign of life, a task fails.",
        "same; the built-in source's default is spark.network.timeout, 120 s",
    ),
    Option(
        "groupIdPrefix",
        "group_id_prefix",
        _text,
        "(none)",
        "Begin of the consumers' group id, for the ACL of groups. No group is joined.",
        "same",
    ),
    Option(
        "openTransaction.warnMs",
        "open_transaction_warn_ms",
        _positive,
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
    Option("topic", "topic", _text, "(the `topic` column)", "Topic for every row; goes before the `topic` column."),
    Option(
        "checkpointLocation",
        "checkpoint_location",
        _text,
        "(none)",
        "The query's checkpoint. Spark needs it in any case; set as an option of the query, the sink can use it too.",
    ),
    Option(
        "transactionalIdPrefix",
        "prefix",
        _text,
        DEFAULT_PREFIX,
        "Begin of every transactional id, for the ACL of the transactional ids. A query keeps it for good.",
    ),
    Option(
        "transaction.timeout.ms",
        "transaction_timeout_ms",
        _positive,
        "(the broker's `transaction.max.timeout.ms`)",
        "How long a task's transaction may stay open; a stage and its commit must fit into it.",
    ),
    Option(
        "ledger.topic",
        "ledger_topic",
        _text,
        DEFAULT_LEDGER_TOPIC,
        "Compacted topic that holds every query's last decision. Created when it is missing. It belongs to the "
        "checkpoint: a query that is given another one knows nothing of what it has decided.",
    ),
    Option(
        "ledger.begin",
        "ledger_begin",
        _boolean,
        "false",
        "`true`, for one start: begin a ledger for a checkpoint that is in mid-life, as when "
        "[moving over](moving.md) from another sink. A micro-batch that this one has left under way is written again.",
    ),
    Option(
        "offsets.group.id",
        "group_id",
        _text,
        "(none)",
        "Consumer group that gets the source's offsets, in the transaction that decides the micro-batch. "
        "Needs `checkpointLocation` as an option of the query.",
    ),
)

#: What may stand before :// in kafka.bootstrap.servers: nothing, or a listener's protocol.
_SCHEMES = ("", "plaintext", "ssl", "sasl_plaintext", "sasl_ssl")

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


@dataclass(frozen=True)
class Fetching:
    """How a task reads. ``poll_timeout_s``: seconds without a sign of life after which it fails."""

    kafka: KafkaProperties
    isolation: Isolation = "read_committed"
    include_headers: bool = False
    fail_on_data_loss: bool = True
    poll_timeout_s: float = 60.0
    group_id: str | None = None


@dataclass(frozen=True)
class SourceOptions:
    """Parsed options of ``read`` and ``readStream``. Times end in their unit; ``ending`` is None for a stream.

    ``starting_option`` and ``ending_option`` are the names under which the user gave the limits, for errors.
    """

    kafka: KafkaProperties
    selection: Selection
    starting: Limit = "latest"
    starting_option: str = "startingOffsets"
    ending: Limit | None = None
    ending_option: str = "endingOffsets"
    isolation: Isolation = "read_committed"
    group_id: str | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    offset_tries: int = 3
    offset_retry_ms: int = 1000
    poll_timeout_ms: int = 60_000
    open_transaction_warn_ms: int = 60_000

    @property
    def fetching(self) -> Fetching:
        """What of it the tasks need."""
        return Fetching(
            self.kafka,
            self.isolation,
            self.include_headers,
            self.fail_on_data_loss,
            self.poll_timeout_ms / 1000,
            self.group_id,
        )


@dataclass(frozen=True)
class SinkOptions:
    """Parsed options of ``writeStream.format("eos-kafka")``. Times are milliseconds."""

    kafka: KafkaProperties
    topic: str | None = None
    checkpoint_location: str | None = None
    prefix: str = DEFAULT_PREFIX
    transaction_timeout_ms: int | None = None
    ledger_topic: str = DEFAULT_LEDGER_TOPIC
    ledger_begin: bool = False
    group_id: str | None = field(default=None)


_SELECTIONS = {"subscribe": "subscribe", "subscribe_pattern": "subscribePattern", "assign": "assign"}
_STREAM_ONLY = {
    "max_offsets_per_trigger": "maxOffsetsPerTrigger",
    "min_offsets_per_trigger": "minOffsetsPerTrigger",
    "max_trigger_delay_s": "maxTriggerDelay",
}


def stream_options(raw: Mapping[str, str]) -> SourceOptions:
    """Parse and check what a user gave to ``readStream``. Raises OptionError."""
    options, given = _source_options(raw, default_start="latest")
    if options.ending is not None:
        raise OptionError(
            "EOS_OPTION_BATCH_ONLY",
            f"Option '{options.ending_option}' is set for a stream, which has no end.",
            hint="Remove it, or read a batch (spark.read); Trigger.AvailableNow ends at what is there at its start.",
            option=options.ending_option,
        )
    return options


def batch_options(raw: Mapping[str, str]) -> SourceOptions:
    """Parse and check what a user gave to ``read``. Raises OptionError."""
    options, given = _source_options(raw, default_start="earliest")
    refuse_latest_start(options.starting_option, options.starting)
    ignored = [name for attribute, name in _STREAM_ONLY.items() if attribute in given]
    if ignored:
        logger.warning("%s: of no use to a batch, ignored", ", ".join(ignored))
    options = options if options.ending is not None else replace(options, ending="latest")
    check_order(options.starting_option, options.starting, options.ending_option, options.ending)
    return options


def source_options(raw: Mapping[str, str]) -> SourceOptions:
    """Parse and check what a user gave to ``read`` or ``readStream``, as far as it is the same. Raises OptionError."""
    return _source_options(raw, default_start="latest")[0]


def _source_options(raw: Mapping[str, str], default_start: Limit) -> tuple[SourceOptions, dict[str, Any]]:
    values, kafka = _parse(raw, SOURCE, SOURCE_OWNED, ignored=("path",))
    given = dict(values)
    properties = dict(kafka)
    selection = _selection(values, _path(raw))
    else_latest = values.pop("else_latest", False)
    starting_option, starting = _limit("starting", values, else_latest)
    ending_option, ending = _limit("ending", values, True)
    group, prefix = properties.pop("group.id", None), values.pop("group_id_prefix", None)
    if group is not None and prefix is not None:
        logger.warning("groupIdPrefix is ignored: kafka.group.id is set")
    if starting == "group" and not group:
        raise OptionError(
            "EOS_OPTION_MISSING",
            "Option 'startingOffsets' is group, but 'kafka.group.id' is missing.",
            hint='Add .option("kafka.group.id", …): the group whose committed offsets the query is to take over.',
            option="kafka.group.id",
        )
    least, most = values.get("min_offsets_per_trigger"), values.get("max_offsets_per_trigger")
    if least is not None and most is not None and least > most:
        raise OptionError(
            "EOS_OPTION_CONFLICT",
            f"'minOffsetsPerTrigger' is {least}, more than 'maxOffsetsPerTrigger', which is {most}.",
            hint="Let the minimum be at most the maximum.",
        )
    options = SourceOptions(
        kafka=KafkaProperties({k: v for k, v in properties.items() if k != "isolation.level"}),
        selection=selection,
        starting=starting or default_start,
        starting_option=starting_option,
        ending=ending,
        ending_option=ending_option,
        isolation=_isolation(properties.get("isolation.level", "read_committed")),
        group_id=group or (f"{prefix}-spark-eos" if prefix else None),
        **values,
    )
    return options, given


def _selection(values: dict[str, Any], path: str) -> Selection:
    given = {name: values.pop(attribute) for attribute, name in _SELECTIONS.items() if attribute in values}
    if not given:
        raise OptionError(
            "EOS_OPTION_MISSING",
            "None of the options 'subscribe', 'subscribePattern' and 'assign' is set.",
            hint='Add .option("subscribe", "topic1,topic2").' + (f" A path ({path}) names no topic." if path else ""),
        )
    if len(given) > 1:
        raise OptionError(
            "EOS_OPTION_CONFLICT",
            f"The options {' and '.join(repr(name) for name in given)} are both set.",
            hint="Keep one of them.",
        )
    (selection,) = given.values()
    return selection


def _limit(side: str, values: dict[str, Any], else_latest: bool) -> tuple[str, Limit | None]:
    """The option that counts, of those that say where reading begins or ends, and what it says."""
    at, times = values.pop(f"{side}_timestamp", None), values.pop(f"{side}_times", None)
    offsets = values.pop(f"{side}_offsets", None)
    if at is not None:
        return f"{side}Timestamp", ByTime(at, else_latest)
    if times is not None:
        return f"{side}OffsetsByTimestamp", ByTime(times, else_latest)
    return f"{side}Offsets", offsets


def sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Parse and check what a user gave to ``writeStream``. Raises OptionError."""
    _refuse_path(raw)
    values, kafka = _parse(raw, SINK, SINK_OWNED, ignored=("path", "queryname"))
    options = SinkOptions(kafka=kafka, **values)
    if options.group_id and not options.checkpoint_location:
        raise OptionError(
            "EOS_OPTION_NEEDS_CHECKPOINT",
            "Option 'offsets.group.id' is set, but 'checkpointLocation' is not an option of the query.",
            hint='The offsets come from the checkpoint\'s offset log: add .option("checkpointLocation", …) to the '
            "writer (a location set for the whole session is not handed to the sink).",
        )
    return options


def _path(raw: Mapping[str, str]) -> str:
    """What the user gave to ``load``, ``start`` or ``toTable``; empty where nothing."""
    return next((value for key, value in raw.items() if key.lower() == "path"), "")


def _refuse_path(raw: Mapping[str, str]) -> None:
    """Who starts a query with a path or a table believes that the rows go there."""
    path = _path(raw)
    if path:
        raise OptionError(
            "EOS_OPTION_PATH",
            f"The query was started with a path or a table ({path}), but the sink writes to topics.",
            hint='Name the topic by .option("topic", …), and end with .start(): neither .start("…") nor .toTable("…").',
            path=path,
        )


def _parse(
    raw: Mapping[str, str], table: tuple[Option, ...], owned: Mapping[str, str], ignored: tuple[str, ...]
) -> tuple[dict[str, Any], KafkaProperties]:
    by_key = {option.name.lower(): option for option in table}
    values: dict[str, Any] = {}
    kafka: dict[str, str] = {}
    for key, value in raw.items():
        lowered = key.lower()
        if lowered.startswith("kafka."):
            kafka[lowered.removeprefix("kafka.")] = value
        elif lowered in by_key:
            option = by_key[lowered]
            values[option.attribute] = option.parse(option.name, value)
        elif lowered not in ignored:
            raise _unknown(key, table)
    _check_kafka(kafka, owned)
    return values, KafkaProperties(kafka)


def _check_kafka(kafka: Mapping[str, str], owned: Mapping[str, str]) -> None:
    for key in kafka:
        if key in owned:
            raise OptionError(
                "EOS_OPTION_RESERVED",
                f"Option 'kafka.{key}' is reserved: {owned[key]}.",
                hint="Remove it.",
                option=f"kafka.{key}",
            )
    if not kafka.get("bootstrap.servers", "").strip():
        raise OptionError(
            "EOS_OPTION_MISSING",
            "Option 'kafka.bootstrap.servers' is missing.",
            hint='Add .option("kafka.bootstrap.servers", "host1:9092,host2:9092").',
            option="kafka.bootstrap.servers",
        )
    for server in kafka["bootstrap.servers"].split(","):
        scheme = server.strip().rpartition("://")[0].lower()
        if scheme not in _SCHEMES:
            raise OptionError(
                "EOS_OPTION_SERVERS",
                f"Option 'kafka.bootstrap.servers' has '{server.strip()}'.",
                hint="It takes host:port, several of them separated by commas.",
                option="kafka.bootstrap.servers",
            )


def _unknown(key: str, table: tuple[Option, ...]) -> OptionError:
    names = [option.name for option in table] + ["kafka.bootstrap.servers"]
    lowered = {name.lower(): name for name in names}
    near = difflib.get_close_matches(key.lower(), lowered, n=1)
    side, call = ("sink", "writeStream") if table is SOURCE else ("source", "readStream")
    if key.lower() in {option.name.lower() for option in (*SOURCE, *SINK)}:
        guess = f"It is an option of the {side}: set it on {call}."
    elif near:
        guess = f"Did you mean '{lowered[near[0]]}'?"
    else:
        guess = f"Known options: {', '.join(names)}, kafka.*."
    return OptionError("EOS_OPTION_UNKNOWN", f"There is no option '{key}'.", hint=guess, option=key)


def markdown() -> str:
    """The options page of the docs."""
    parts = ["# Options", "", "Made by `python -m spark_eos.options.parse`; a test holds this page to it."]
    for title, table, owned in (("Source", SOURCE, SOURCE_OWNED), ("Sink", SINK, SINK_OWNED)):
        parts += ["", f"## {title}", "", "| option | default | meaning |", "| --- | --- | --- |"]
        parts += [f"| `{o.name}` | {o.default} | {o.doc} |" for o in table]
        parts += ["| `kafka.*` | `kafka.bootstrap.servers` is required | Of the client; Java's names do, too. |"]
        parts += ["", "Reserved, with what to do instead:", ""]
        parts += [f"- `kafka.{key}`: {why}" for key, why in owned.items()]
    parts += ["", "## Beside Spark's built-in Kafka source", ""]
    parts += [
        "Options of the `kafka` format of Spark 4.2, for reading. The columns are the same, in name, type and order.",
        "",
    ]
    parts += ["| option | here |", "| --- | --- |"]
    parts += [f"| `{o.name}` | {o.parity or 'new'} |" for o in SOURCE]
    parts += [
        f"| {name if name.startswith('spark') else f'`{name}`'} | {what}: {why} |" for name, what, why in ELSEWHERE
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
