"""Every option: type, default, doc, and who may set it.

The tables ``SOURCE`` and ``SINK`` are the one place where options are declared; parsing, the error for an unknown key
and the options page of the docs are made from them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_eos.errors import OptionError
from spark_eos.source.offsets import StartingOffsets, parse_starting_offsets

DEFAULT_LEDGER_TOPIC = "__spark_eos_ledger"
DEFAULT_PREFIX = "spark-eos"

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


def _topics(name: str, value: str) -> tuple[str, ...]:
    topics = tuple(t.strip() for t in value.split(","))
    if not all(topics):
        raise OptionError(
            "EOS_OPTION_EMPTY", f"Option '{name}' has an empty topic name: '{value}'.", hint="Write: topic1,topic2."
        )
    return tuple(dict.fromkeys(topics))


@dataclass(frozen=True)
class Option:
    """One option of one side. ``attribute`` is its field in the parsed dataclass."""

    name: str
    attribute: str
    parse: Callable[[str, str], Any]
    default: str
    doc: str


SOURCE = (
    Option("subscribe", "topics", _topics, "(required)", "Topics to read: one, or several separated by commas."),
    Option(
        "startingOffsets",
        "starting_offsets",
        parse_starting_offsets,
        "latest",
        "Where a new query begins: `earliest`, `latest`, or JSON such as `{\"flights\":{\"0\":23,\"1\":-2}}` "
        "(-2 is earliest, -1 latest). A restarted query goes on from its checkpoint.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        "max_offsets_per_trigger",
        _positive,
        "(no limit)",
        "At most this many offsets in a micro-batch, shared out over the partitions by what waits in each.",
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
        "`true`: begin a ledger for a checkpoint that is in mid-life, as after a change from another sink. The batch "
        "that runs first may then repeat what the other sink has already written.",
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

_OWNED = "spark-eos sets it"
#: ``kafka.*`` keys that a user may not set, with what to do instead.
SOURCE_OWNED = {
    "group.id": "the source does not join a group; use the sink's option 'offsets.group.id' to publish offsets",
    "auto.offset.reset": "use the option 'startingOffsets'",
    "enable.auto.commit": "offsets are kept in the checkpoint",
    "enable.auto.offset.store": "offsets are kept in the checkpoint",
    "key.deserializer": "key and value are read as binary; cast them in the query",
    "value.deserializer": "key and value are read as binary; cast them in the query",
    "interceptor.classes": "there is no JVM consumer",
    "enable.partition.eof": _OWNED,
    "isolation.level": "the source reads read_committed",
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
class SourceOptions:
    """Parsed options of ``readStream.format("eos-kafka")``. Offsets and sizes are counts of records."""

    kafka: KafkaProperties
    topics: tuple[str, ...]
    starting_offsets: StartingOffsets = "latest"
    max_offsets_per_trigger: int | None = None


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


def source_options(raw: Mapping[str, str]) -> SourceOptions:
    """Parse and check what a user gave to ``readStream``. Raises OptionError."""
    values, kafka = _parse(raw, SOURCE, SOURCE_OWNED, ignored=("path",))
    if "topics" not in values:
        raise OptionError(
            "EOS_OPTION_MISSING", "Option 'subscribe' is missing.", hint='Add .option("subscribe", "topic1,topic2").'
        )
    return SourceOptions(kafka=kafka, **values)


def sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Parse and check what a user gave to ``writeStream``. Raises OptionError."""
    values, kafka = _parse(raw, SINK, SINK_OWNED, ignored=("path", "queryname"))
    options = SinkOptions(kafka=kafka, **values)
    if options.group_id and not options.checkpoint_location:
        raise OptionError(
            "EOS_OPTION_NEEDS_CHECKPOINT",
            "Option 'offsets.group.id' is set, but 'checkpointLocation' is not an option of the query.",
            hint="The offsets come from the checkpoint's offset log: add .option(\"checkpointLocation\", …) to the "
            "writer (a location set for the whole session is not handed to the sink).",
        )
    return options


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


def _unknown(key: str, table: tuple[Option, ...]) -> OptionError:
    names = [option.name for option in table] + ["kafka.bootstrap.servers"]
    lowered = {name.lower(): name for name in names}
    near = difflib.get_close_matches(key.lower(), lowered, n=1)
    guess = f"Did you mean '{lowered[near[0]]}'?" if near else f"Known options: {', '.join(names)}, kafka.*."
    return OptionError("EOS_OPTION_UNKNOWN", f"There is no option '{key}'.", hint=guess, option=key)


def markdown() -> str:
    """The options page of the docs."""
    parts = ["# Options", "", "Made by `python -m spark_eos.options`; a test holds this page to it."]
    for title, table, owned in (("Source", SOURCE, SOURCE_OWNED), ("Sink", SINK, SINK_OWNED)):
        parts += ["", f"## {title}", "", "| option | default | meaning |", "| --- | --- | --- |"]
        parts += [f"| `{o.name}` | {o.default} | {o.doc} |" for o in table]
        parts += ["| `kafka.*` | `kafka.bootstrap.servers` is required | Of the client; Java's names do, too. |"]
        parts += ["", "Reserved, with what to do instead:", ""]
        parts += [f"- `kafka.{key}`: {why}" for key, why in owned.items()]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
