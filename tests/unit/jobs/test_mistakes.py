"""Mistakes in the config files of jobs: each is refused before Spark starts, by its key, with what to write instead.

A row has a patch of the job's right file, the key and the condition of the error, and words of its text. Whatever is
wrong with YAML or variables is in test_config.py.
"""

from __future__ import annotations

import pytest

from jobs.delta_to_kafka import REFUSED
from spark_eos.errors import EosError
from tests.unit.jobs.conftest import SECRET, Planned

REGISTRY = "registry: http://localhost:8081"
UNKNOWN, MISSING, INVALID = "EOS_CONFIG_UNKNOWN_KEY", "EOS_CONFIG_MISSING_KEY", "EOS_CONFIG_INVALID_VALUE"
FUNCTION, OPTION, WITHOUT = "EOS_CONFIG_FUNCTION", "EOS_OPTION_INVALID", "EOS_OPTION_MISSING"

IN_EVERY_JOB = [
    ("{tigger: x}", "tigger", UNKNOWN, "Did you mean 'trigger'?"),
    ("{zebra: x}", "zebra", UNKNOWN, "Known here: kafka, trigger,"),
    ("{checkpoint: -}", "checkpoint", MISSING, "is missing"),
    ("{checkpoint: null}", "checkpoint", MISSING, "is missing"),
    ("{checkpoint: ''}", "checkpoint", INVALID, "is empty"),
    ("{checkpoint: [a]}", "checkpoint", INVALID, "is not one value"),
    ("{source: {subscribe: [flights]}}", "source.subscribe", INVALID, "one text with commas"),
    ("{source: {kafka.fetch.max.bytes: null}}", "source.kafka.fetch.max.bytes", INVALID, "is not one value"),
    ("{source: {subscribe: x, SUBSCRIBE: y}}", "source.subscribe", INVALID, "is there twice"),
    ("{sink: 5}", "sink", INVALID, "is not a section"),
    ("{sink: {checkpointLocation: c}}", "sink.checkpointLocation", INVALID, "Use 'checkpoint'"),
    ("{trigger: 1 secnd}", "trigger", INVALID, "Use availableNow, or an interval"),
    ("{trigger: '\uff11 second'}", "trigger", INVALID, "is not an interval"),
    ("{restart: {attempts: -1}}", "restart.attempts", INVALID, "at least 0"),
    ("{restart: {attempts: '1_0'}}", "restart.attempts", INVALID, "whole number"),
    ("{restart: {pause: soon}}", "restart.pause", INVALID, "is not an interval"),
    ("{restart: [5]}", "restart", INVALID, "is not a section of keys"),
    ("{metrics: {}}", "metrics", MISSING, "{port: 9400}"),
    ("{metrics: {port: 70000}}", "metrics.port", INVALID, "at most 65535"),
    ("{spark: {spark.master: lcoal}}", "spark.spark.master", INVALID, "local[4]"),
]
TRANSFORMS = [
    ("{transform: {fromat: json}}", "transform.fromat", UNKNOWN, "Did you mean 'format'?"),
    ("{transform: {format: jason}}", "transform.format", INVALID, "Use 'json', 'csv' or 'string'"),
    ("{transform: {schema: -}}", "transform.schema", MISSING, "DDL"),
    ("{transform: {format: string}}", "transform.schema", INVALID, "is not for this format"),
    ("{transform: {format: -}}", "transform.schema", INVALID, "is not for this format"),
    ("{transform: {function: 'json:loads'}}", "transform", INVALID, "Keep one of sql and function"),
    ("{transform: {sql: -}}", "transform", MISSING, "Set one of sql, function, arrow, copy"),
    ("{transform: {sql: -, function: 'no_such:f'}}", "transform.function", FUNCTION, "PYTHONPATH"),
    ("{transform: {sql: -, copy: murmur2}}", "transform.copy", INVALID, "Use 'same' or 'key'"),
    ("{transform: {sql: -, copy: same}}", "transform.format", INVALID, "rows that pass through Spark"),
    ("{transform: {ordered: false}}", "transform.ordered", INVALID, "rows past the JVM"),
    (
        "{transform: {format: -, schema: -, sql: -, copy: same}, source: {minPartitions: 6}}",
        "source.minPartitions",
        "EOS_OPTION_CONFLICT",
        "set 'transform.ordered: false'",
    ),
    ("{transform: {engine: duckdb}}", "transform.format", INVALID, "rows that pass through Spark"),
    ("{transform: {sql: -, arrow: 'json:loads'}}", "transform.format", INVALID, "rows that pass through Spark"),
    ("{transform: {engine: polars}}", "transform.engine", INVALID, "Use 'spark' or 'duckdb'"),
    ("{transform: {sql: -, function: 'json:loads', engine: duckdb}}", "transform.engine", INVALID, "is for 'sql'"),
    ("{transform: {format: -, schema: -, onMalformed: drop}}", "transform.onMalformed", INVALID, "that are parsed"),
    ("{transform: {onMalformed: deadLetters}}", "sink.deadLetters.topic", MISSING, "'onMalformed' refers"),
    (
        "{transform: {onMalformed: deadLetters}, sink: {deadLetters.topic: d, offsets.group.id: g}}",
        "sink.offsets.group.id",
        INVALID,
        "cannot have the offsets",
    ),
]
PARSE = f"format: -, schema: -, parse: {{format: avro, {REGISTRY}}}"
REGISTRIES = [
    (f"{{transform: {{parse: {{format: avro, {REGISTRY}}}}}}}", "transform.format", INVALID, "besides 'parse'"),
    (f"{{transform: {{parse: {{format: xml, {REGISTRY}}}}}}}", "transform.parse.format", INVALID, "Use 'avro'"),
    ("{transform: {parse: {format: avro}}}", "transform.parse.registry", MISSING, "is missing"),
    (
        "{transform: {parse: {format: avro, registry: [swordfish]}}}",
        "transform.parse.registry",
        INVALID,
        "is not an address",
    ),
    (
        "{transform: {parse: {format: avro, registry: {url: 'ftp://swordfish'}}}}",
        None,
        OPTION,
        "registry.url",
    ),
    (
        f"{{transform: {{parseKey: {{format: avro, {REGISTRY}, version: 0}}}}}}",
        "transform.parseKey.version",
        INVALID,
        "is too small",
    ),
    (
        f"{{transform: {{encode: {{format: avro, {REGISTRY}, autoRegister: false}}}}}}",
        "transform.encode.autoRegister",
        INVALID,
        "is for a 'schema'",
    ),
    (f"{{transform: {{{PARSE}, sql: -, copy: same}}}}", "transform.parse", INVALID, "rows that are transformed"),
    (
        f"{{transform: {{{PARSE}}}, source: {{subscribe: 'one,two'}}}}",
        "transform.parse.subject",
        MISSING,
        "not one topic",
    ),
    (
        f"{{transform: {{encode: {{format: avro, {REGISTRY}}}}}, sink: {{topic: -}}}}",
        "transform.encode.subject",
        MISSING,
        "not one topic",
    ),
]
MIRRORS = [
    ("{sink: {topic: b}}", "sink.topic", INVALID, "'topics.prefix'"),
    ("{source: {subscribe: -, subscribes: a}}", "source.subscribes", "EOS_OPTION_UNKNOWN", "Did you mean 'subscribe'"),
    ("{sink: {ledger.topics: a}}", "sink.ledger.topics", "EOS_OPTION_UNKNOWN", "Did you mean 'ledger.topic'"),
    ("{source: {failOnDataLoss: maybe}}", "source.failOnDataLoss", OPTION, "is '…'"),
    ("{source: {subscribe: -}}", "source", WITHOUT, "'subscribe: \"topic1,topic2\"'"),
    ("{sink: {kafka.bootstrap.servers: -}}", "sink", WITHOUT, "'kafka.bootstrap.servers' is missing"),
    ("{kafka: {fetch.max.byte: 1}}", "kafka.fetch.max.byte", "EOS_OPTION_UNKNOWN", "Did you mean"),
    ("{topics: {settings: {max.message.bytes: 10MB}}}", "topics.settings.max.message.bytes", INVALID, "whole number"),
    ("{topics: {settings: {retention.ms: '\uff11'}}}", "topics.settings.retention.ms", INVALID, "whole number"),
    ("{topics: {replication: 0}}", "topics.replication", INVALID, "from 1 on"),
    ("{topics: {replication: -2}}", "topics.replication", INVALID, "is too small"),
    *(
        (f"{{topics: {{prefix: '{prefix}'}}}}", "topics.prefix", INVALID, "no topic can have")
        for prefix in ("a b", "a/", "p" * 249)
    ),
    (f"{{topics: {{prefix: '{'p' * 248}'}}}}", "topics.prefix", INVALID, "249"),
    *((f"{{topics: {{map: '{name}'}}}}", "topics.map", INVALID, "no topic can have") for name in ("", "..", "a/b")),
    *(
        (f"{{topics: {{map: '{name}'}}}}", "topics.map", INVALID, "name of a ledger")
        for name in ("own-ledger", "__spark_eos_ledger", "__spark_eos_files")
    ),
]
LINES_OF_JSON = "files: {format: json, schema: -}"
PAST_THE_JVM = "is for records that are parsed"
INGESTS = [
    ("{files: {schema: -}}", "files.schema", MISSING, "the format needs it"),
    ("{files: {format: text}}", "files.schema", INVALID, "is not for this format"),
    ("{files: {lineSep: x}}", "files.lineSep", UNKNOWN, "is not a known key"),
    ("{files: {locale: de_DE}}", "files.locale", INVALID, "de-DE, with a hyphen"),
    ("{files: {timestampFormat: ss.SSSSSSS}}", "files.timestampFormat", INVALID, "more digits of a second"),
    ("{files: {multiLine: 1}}", "files.multiLine", INVALID, "neither true nor false"),
    ("{files: {quote: «}}", "files.quote", INVALID, "is not one byte"),
    ('{files: {quote: "\\0"}}', "files.quote", INVALID, "is not one byte"),
    ('{files: {delimiter: "\\r"}}', "files.delimiter", INVALID, "is not one byte"),
    ("{files: {delimiter: '||'}}", "files.delimiter", INVALID, "is not one byte"),
    ("{files: {delimiter: '\"'}}", "files.delimiter", INVALID, "does not fit 'quote' and 'escape'"),
    ("{files: {quote: ' '}}", "files.delimiter", INVALID, "does not fit 'quote' and 'escape'"),
    ("{files: {escape: x}}", "files.escape", INVALID, "neither the quote nor a backslash"),
    ("{files: {quote: x, escape: '\"'}}", "files.escape", INVALID, "neither the quote nor a backslash"),
    ("{files: {unchangedFor: 1 second, marker: .done}}", "files.unchangedFor", INVALID, "is not for files"),
    *(
        (f"{{files: {{pattern: '{pattern}'}}}}", "files.pattern", INVALID, "no name that a file is likely")
        for pattern in ("*.{csv,txt}", "**/*.csv", "in\\*.csv")
    ),
    *(
        (f"{{files: {{pattern: '{pattern}'}}}}", "files.pattern", INVALID, "no file that is taken")
        for pattern in ("_*.csv", "[._]*", "*[z-a]")
    ),
    ("{tasks: 0}", "tasks", INVALID, "is too small"),
    ("{transform: {format: string}}", "transform.format", UNKNOWN, "is not a known key"),
    ("{transform: -}", "transform", MISSING, "CSV is parsed"),
    ("{transform: {engine: duckdb}}", "files.format", INVALID, "is csv, which only Spark parses"),
    ("{transform: {sql: -, arrow: 'os.path:join'}}", "files.format", INVALID, "is csv, which only Spark parses"),
    (f"{{{LINES_OF_JSON}}}", "files.schema", MISSING, "the format needs it"),
    ("{transform: -, files: {format: json}}", "files.schema", INVALID, PAST_THE_JVM),
    ("{transform: -, files: {format: json, schema: -, locale: de}}", "files.locale", INVALID, PAST_THE_JVM),
    ("{transform: -, files: {format: text, schema: -, onMalformed: drop}}", "files.onMalformed", INVALID, PAST_THE_JVM),
    ("{transform: {engine: duckdb}, files: {format: json}}", "files.schema", INVALID, PAST_THE_JVM),
    ("{sink: {topic: -, deadLetters.topic: t}}", "sink.topic", MISSING, "is missing"),
    ("{sink: {checkpointLocation: /c}}", "sink.checkpointLocation", "EOS_OPTION_UNSUPPORTED", "checkpointLocation"),
]
BY_SPARK = "engine: spark, format: json, schema: n INT"
INTO_DELTA = [
    ("{target: {merge: [n]}}", "target.merge", INVALID, "rows that pass through Spark"),
    ("{target: {schema: merge}}", "target.schema", INVALID, "none of the values"),
    ("{target: {mergeSchema: true}}", "target.mergeSchema", UNKNOWN, "is not a known key"),
    ("{transform: {engine: spark}}", "transform.engine", INVALID, "means Spark, which only merges"),
    (f"{{transform: {{{BY_SPARK}}}}}", "transform.engine", INVALID, "means Spark, which only merges"),
    (
        "{transform: {engine: spark, sql: -, function: 'json:dumps'}}",
        "transform.function",
        INVALID,
        "means Spark, which only merges",
    ),
    (
        f"{{transform: {{{BY_SPARK}}}, target: {{merge: [n], afterRestore: 3}}}}",
        "target.afterRestore",
        INVALID,
        "is only for rows that are appended",
    ),
    ("{target: {merge: [n]}, transform: -}", "transform", MISSING, "A merge needs the columns"),
    (f"{{transform: {{{BY_SPARK}}}, target: {{merge: [offset]}}}}", "target.merge", INVALID, "offset"),
    ("{target: {merge: [n, N]}}", "target.merge", INVALID, "names a column twice"),
    ("{target: {path: 'a`b'}}", "target.path", INVALID, "has a backtick"),
    ("{target: {afterRestore: -1}}", "target.afterRestore", INVALID, "is too small"),
    ("{transform: {onMalformed: deadLetters}}", "transform.onMalformed", INVALID, "Use 'fail' or 'drop'"),
    (
        f"{{transform: {{{BY_SPARK}}}, target: {{merge: [n]}}, spark: {{spark.sql.files.ignoreCorruptFiles: 'true'}}}}",
        "spark.spark.sql.files.ignoreCorruptFiles",
        INVALID,
        "makes rows disappear",
    ),
]
INTO_ICEBERG = [
    ("{target: {catalog.uri: [x]}}", "target.catalog.uri", INVALID, "is not one value"),
    ("{target: {partitionBy: day(timestamp)}}", "target.partitionBy", INVALID, "is not a list"),
    (f"{{target: {{afterRollback: {2**63}}}}}", "target.afterRollback", INVALID, "is too large"),
    ("{transform: {engine: spark}}", "transform.engine", INVALID, "Use 'duckdb'"),
    ("{transform: {format: json}}", "transform.format", UNKNOWN, "is not a known key"),
    ("{transform: {function: 'json:dumps'}}", "transform.function", UNKNOWN, "Set 'arrow'"),
    ("{transform: {sql: -, onMalformed: drop}}", "transform", MISSING, "Set one of sql, arrow."),
    ("{transform: {arrow: 'json:dumps'}}", "transform", INVALID, "Keep one of sql and arrow"),
    ("{transform: {sql: SELECT count(*) AS n FROM input}}", None, "EOS_TRANSFORM_SQL", "it groups or aggregates rows"),
    (
        f"{{transform: {{parse: {{format: avro, {REGISTRY}}}}}, source: {{subscribe: 'one,two'}}}}",
        "transform.parse.subject",
        MISSING,
        "not one topic",
    ),
    ("{target: {table: flights}}", "target.table", OPTION, "no name of a table"),
    ("{target: {partitionBy: ['bucket(0, key)']}}", "target.partitionBy", OPTION, "truncate(WIDTH, COLUMN)"),
    ("{source: {failOnDataloss: maybe}}", "source.failOnDataloss", OPTION, "true"),
]
FROM_DELTA = [
    ("{source: {startingVersion: latest}}", "source.startingVersion", INVALID, "is not a whole number"),
    *((f"{{source: {{{name.upper()}: true}}}}", f"source.{name.upper()}", INVALID, "Remove it") for name in REFUSED),
]
MISTAKES = {
    "consume_transform_produce": [*IN_EVERY_JOB, *TRANSFORMS, *REGISTRIES],
    "mirror": MIRRORS,
    "ingest_files": INGESTS,
    "kafka_to_delta": INTO_DELTA,
    "kafka_to_iceberg": INTO_ICEBERG,
    "delta_to_kafka": FROM_DELTA,
}


@pytest.mark.parametrize("job", MISTAKES)
def test_a_right_file_is_planned(job: str, planned: Planned) -> None:
    """Without a patch, nothing is wrong."""
    assert planned(job).line


@pytest.mark.parametrize(
    ("job", "patch", "key", "condition", "says"), [(job, *row) for job, rows in MISTAKES.items() for row in rows]
)
def test_a_mistake_is_named_by_its_key(
    job: str, patch: str, key: str | None, condition: str, says: str, planned: Planned
) -> None:
    """The error has its condition, the key, and what to write instead; no secret of the file is in it."""
    with pytest.raises(EosError) as caught:
        planned(job, patch)
    error = caught.value
    assert (error.condition, error.parameters.get("key")) == (condition, key), error
    assert says in str(error) and SECRET not in str(error)
