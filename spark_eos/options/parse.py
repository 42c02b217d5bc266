"""Parsing and checking of the user's options. Raises OptionError."""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_eos.base.log import logger
from spark_eos.checkpoint import offset_log
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError, invalid_option, missing_option, option_twice, stop
from spark_eos.kafka.config.properties import Isolation, KafkaProperties, shown_address
from spark_eos.kafka.partitioners import PARTITIONERS
from spark_eos.options.bounds import (
    ByTime,
    Limit,
    check_order,
    refuse_latest_start,
)
from spark_eos.options.selection import Selection
from spark_eos.options.table import (
    DEFAULT_LEDGER_TOPIC,
    DEFAULT_PREFIX,
    SINK,
    SINK_OWNED,
    SOURCE,
    SOURCE_OWNED,
    Option,
)
from spark_eos.options.values import parse_isolation, parsed

_NO_SETTINGS = HadoopSettings()
#: Schemes that may precede :// in kafka.bootstrap.servers: none, or a listener's protocol.
_SCHEMES = ("", "plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
#: An address in kafka.bootstrap.servers: ``host``, which is no mere number, or ``[v6 address]``; a port may follow.
_SERVER = re.compile(r"(?:\[[^\]\s]+\]|(?![0-9]+(?::|$))[^\s:;/@\[\]]+)(?::(?P<port>[0-9]{1,5}))?")

#: A record batch that brokers take by default has 1 MiB, compressed, and seldom a hundred times as much.
MAX_DECOMPRESSED_BYTES = 128 << 20


@dataclass(frozen=True)
class SourceOptions:
    """Parsed options of ``read`` and ``readStream``. Durations end in their unit; ``ending`` is None for a stream.

    ``starting_option`` and ``ending_option`` are the options by which the user set the limits, for error messages.
    ``sink``: the table that the rows go to, where that is known, for the offset log.
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
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    offset_tries: int = 3
    offset_retry_ms: int = 1000
    poll_timeout_ms: int = 60_000
    open_transaction_warn_ms: int = 60_000
    report_group: str | None = None
    sink: Mapping[str, str] = field(default_factory=dict)
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES


@dataclass(frozen=True)
class SinkOptions:
    """Parsed options of ``writeStream.format("eos-kafka")``. Durations are in milliseconds."""

    kafka: KafkaProperties
    topic: str | None = None
    dead_letters: str | None = None
    checkpoint_location: str | None = None
    prefix: str = DEFAULT_PREFIX
    transaction_timeout_ms: int | None = None
    two_phase: bool = False
    ledger_topic: str = DEFAULT_LEDGER_TOPIC
    ledger_begin: int | None = None
    group_id: str | None = None
    storage: HadoopSettings = _NO_SETTINGS

    @property
    def partitioner(self) -> str | None:
        """The user's own choice of one, by librdkafka's name."""
        return self.kafka.get("partitioner")


_SELECTIONS = {"subscribe": "subscribe", "subscribe_pattern": "subscribePattern", "assign": "assign"}
_STREAM_ONLY = {
    "max_offsets_per_trigger": "maxOffsetsPerTrigger",
    "max_bytes_per_trigger": "maxBytesPerTrigger",
    "min_offsets_per_trigger": "minOffsetsPerTrigger",
    "max_trigger_delay_s": "maxTriggerDelay",
    "report_group": "offsets.group.id",
}


def stream_options(raw: Mapping[str, str]) -> SourceOptions:
    """Parse and check a user's options of ``readStream``. Raises OptionError."""
    options, _ = _source_options(raw, default_start="latest")
    if options.ending is not None:
        raise stop(
            "EOS_OPTION_UNSUPPORTED.remove",
            option=options.ending_option,
            why="a stream has no end",
            instead=", or read a batch (spark.read). Trigger.AvailableNow ends with what is there at the start",
        )
    return options


def batch_options(raw: Mapping[str, str]) -> SourceOptions:
    """Parse and check a user's options of ``read``. Raises OptionError."""
    options, given = _source_options(raw, default_start="earliest")
    refuse_latest_start(options.starting_option, options.starting)
    ignored = [name for attribute, name in _STREAM_ONLY.items() if attribute in given]
    if ignored:
        logger.warning("%s: of no use to a batch, ignored", ", ".join(ignored))
    options = options if options.ending is not None else replace(options, ending="latest")
    check_order(options.starting_option, options.starting, options.ending_option, options.ending)
    return options


def source_options(raw: Mapping[str, str]) -> SourceOptions:
    """Parse and check a user's options of ``read`` or ``readStream``, as far as both agree. Raises OptionError."""
    return _source_options(raw, default_start="latest")[0]


def _source_options(raw: Mapping[str, str], default_start: Limit) -> tuple[SourceOptions, dict[str, Any]]:
    values, kafka = parse_table(raw, SOURCE, SOURCE_OWNED, ignored=("path", offset_log.SINK))
    given = dict(values)
    properties = dict(kafka)
    selection = _selection(values, _path(raw))
    else_latest = values.pop("else_latest", False)
    starting_option, starting = _limit("starting", values, else_latest)
    ending_option, ending = _limit("ending", values, True)
    group, prefix = properties.pop("group.id", None) or None, values.pop("group_id_prefix", None)
    if group is not None and prefix is not None:
        logger.warning("groupIdPrefix is ignored: kafka.group.id is set")
    if starting == "group" and not group:
        raise missing_option(
            "kafka.group.id",
            "'startingOffsets' is group",
            "the consumer group at whose committed offsets the query is to begin",
        )
    least, most = values.get("min_offsets_per_trigger"), values.get("max_offsets_per_trigger")
    if least is not None and most is not None and least > most:
        raise stop("EOS_OPTION_CONFLICT.offsets_per_trigger", min_offsets=least, max_offsets=most)
    options = SourceOptions(
        kafka=KafkaProperties({k: v for k, v in properties.items() if k != "isolation.level"}),
        selection=selection,
        starting=default_start if starting is None else starting,
        starting_option=starting_option,
        ending=ending,
        ending_option=ending_option,
        isolation=parse_isolation(properties.get("isolation.level", "read_committed")),
        group_id=group or (f"{prefix}-spark-eos" if prefix else None),
        sink=parsed(offset_log.SINK, lambda _, text: json.loads(text), raw.get(offset_log.SINK, "{}")),
        **values,
    )
    return options, given


def _selection(values: dict[str, Any], path: str) -> Selection:
    given: dict[str, Selection] = {
        name: values.pop(attribute) for attribute, name in _SELECTIONS.items() if attribute in values
    }
    if not given:
        why = "neither it nor 'subscribePattern' or 'assign' is set" + (
            f", and a path ({path}) names no topic" if path else ""
        )
        raise missing_option("subscribe", why, 'the topics to read: .option("subscribe", "topic1,topic2")')
    if len(given) > 1:
        raise stop("EOS_OPTION_CONFLICT.both", given=f"The options {' and '.join(repr(name) for name in given)}")
    (selection,) = given.values()
    return selection


def _limit(side: str, values: dict[str, Any], else_latest: bool) -> tuple[str, Limit | None]:
    """Return the start or end option of reading that takes precedence, and its value."""
    at, times = values.pop(f"{side}_timestamp", None), values.pop(f"{side}_times", None)
    offsets = values.pop(f"{side}_offsets", None)
    if at is not None:
        return f"{side}Timestamp", ByTime(at, else_latest)
    if times is not None:
        return f"{side}OffsetsByTimestamp", ByTime(times, else_latest)
    return f"{side}Offsets", offsets


def sink_options(raw: Mapping[str, str], session: Mapping[str, str] = _NO_SETTINGS) -> SinkOptions:
    """Parse and check a user's options of ``writeStream``. Raises OptionError.

    ``session``: Hadoop's settings of file systems in the session; the query's own go before them.
    """
    refuse_path(raw)
    given, storage = HadoopSettings.split_off(raw, session)
    values, kafka = parse_table(given, SINK, SINK_OWNED, ignored=("path", "queryname"))
    options = SinkOptions(kafka=kafka, storage=storage, **values)
    if options.group_id and not options.checkpoint_location:
        raise missing_option(
            "checkpointLocation",
            "'offsets.group.id' needs it, as the offsets are read from its offset log",
            'it by .option("checkpointLocation", …) of the writer: one of the session is not passed to the sink',
        )
    check_ledger_is_apart(options)
    return options


def check_ledger_is_apart(options: SinkOptions) -> None:
    """Raise OptionError where rows would go to the ledger: nobody could read it while a task writes."""
    if options.topic == options.ledger_topic:
        raise stop(
            "EOS_OPTION_CONFLICT.same_topic",
            option="ledger.topic",
            other="topic",
            topic=options.topic,
            kind="decisions",
        )


def _path(raw: Mapping[str, str]) -> str:
    """Return the argument of ``load``, ``start`` or ``toTable``; empty if there is none."""
    return next((value for key, value in raw.items() if key.lower() == "path"), "")


def refuse_path(raw: Mapping[str, str]) -> None:
    """Refuse a path or a table: a user who passes one expects the rows to be written there."""
    path = _path(raw)
    if path:
        raise stop("EOS_OPTION_INVALID.path", path=path)


def parse_table(
    raw: Mapping[str, str], table: tuple[Option, ...], owned: Mapping[str, str], ignored: tuple[str, ...]
) -> tuple[dict[str, Any], KafkaProperties]:
    """Return the values of these options, by attribute, and the client properties. Raises OptionError."""
    by_key = {option.name.lower(): option for option in table}
    values: dict[str, Any] = {}
    kafka: dict[str, str] = {}
    for key, value in raw.items():
        lowered = key.lower()
        if lowered.startswith("kafka."):
            if kafka.setdefault(lowered.removeprefix("kafka."), value) != value:
                raise option_twice(lowered)
        elif lowered in by_key:
            option = by_key[lowered]
            one = parsed(option.name, option.parse, value)
            if values.setdefault(option.attribute, one) != one:
                raise option_twice(option.name)
        elif lowered not in ignored:
            raise _unknown(key, table)
    _check_kafka(kafka, owned)
    for key, value in kafka.items():
        if "PRIVATE KEY" in value:
            _warn_of_key(key)
    return values, KafkaProperties(kafka)


@functools.cache
def _warn_of_key(key: str) -> None:
    """Warn of a private key in an option, once in a process. Spark itself hides only options whose name or value has
    "password", "secret" or "token"."""
    logger.warning(
        "option 'kafka.%s' contains a private key: Spark prints it in plans and in its event log, unless "
        "spark.sql.redaction.options.regex is set, to (?i)url|key. Keys in files are not printed.",
        key,
    )


def _check_kafka(kafka: Mapping[str, str], owned: Mapping[str, str]) -> None:
    for key in kafka:
        if key in owned:
            raise stop("EOS_OPTION_RESERVED.kafka", option=f"kafka.{key}", key=key, owned=owned[key])
    given = kafka.get("bootstrap.servers", "")
    servers = list(filter(None, map(str.strip, given.split(","))))
    if not servers:
        raise missing_option(
            "kafka.bootstrap.servers",
            "it names the cluster",
            'the brokers: .option("kafka.bootstrap.servers", "host1:9092,host2:9092")',
        )
    for server in servers:
        scheme, _, address = server.rpartition("://")
        match = _SERVER.fullmatch(address)
        if scheme.lower() not in _SCHEMES or match is None or not 0 < int(match["port"] or 9092) < 65_536:
            shown = shown_address(server, given)
            raise invalid_option("kafka.bootstrap.servers", f"'{shown}'", "host:port, separated by commas")
    partitioner = kafka.get("partitioner")
    if partitioner is not None and partitioner not in PARTITIONERS:
        raise invalid_option("kafka.partitioner", f"'{partitioner}'", " or ".join(sorted(PARTITIONERS)))


def _unknown(key: str, table: tuple[Option, ...]) -> EosError:
    names = [option.name for option in table if option.doc] + ["kafka.bootstrap.servers"]
    lowered = {name.lower(): name for name in names}
    near = difflib.get_close_matches(key.lower(), lowered, n=1)
    side, call = ("sink", "writeStream") if table is SOURCE else ("source", "readStream")
    if key.lower() in {option.name.lower() for option in (*SOURCE, *SINK)}:
        return stop("EOS_OPTION_UNKNOWN.other_side", option=key, side=side, call=call)
    if near:
        return stop("EOS_OPTION_UNKNOWN.near", option=key, nearest=lowered[near[0]])
    return stop("EOS_OPTION_UNKNOWN.option", option=key, names=f"{', '.join(names)}, kafka.*")
