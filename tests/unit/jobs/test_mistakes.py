"""Mistakes in the config files of jobs: each is refused before Spark starts, by its key, with what to write instead.

A row has a patch of the job's right file, the key of the error, words of its text, and its condition where that is not
the one of a value. Whatever is wrong with YAML or variables is in test_config.py.
"""

from __future__ import annotations

import pytest

from jobs.delta_to_kafka import REFUSED
from spark_eos.errors import EosError
from tests.unit.jobs.conftest import SECRET, Planned

AVRO = "format: avro, registry: http://h:1"
UNKNOWN, MISSING, INVALID = "EOS_CONFIG_UNKNOWN_KEY", "EOS_CONFIG_MISSING_KEY", "EOS_CONFIG_INVALID_VALUE"
FUNCTION, OPTION, WITHOUT = "EOS_CONFIG_FUNCTION", "EOS_OPTION_INVALID", "EOS_OPTION_MISSING"

IN_EVERY_JOB = [
    ("tigger: x", "tigger", "Did you mean 'trigger'?", UNKNOWN),
    ("zebra: x", "zebra", "Known here: kafka, trigger,", UNKNOWN),
    ("checkpoint: -", "checkpoint", "is missing", MISSING),
    ("checkpoint: null", "checkpoint", "is missing", MISSING),
    ("checkpoint: ''", "checkpoint", "is empty"),
    ("checkpoint: [a]", "checkpoint", "is not one value"),
    ("source: {subscribe: [flights]}", "source.subscribe", "one text with commas"),
    ("source: {kafka.fetch.max.bytes: null}", "source.kafka.fetch.max.bytes", "is not one value"),
    ("source: {subscribe: x, SUBSCRIBE: y}", "source.subscribe", "is there twice"),
    ("sink: 5", "sink", "is not a section"),
    ("sink: {checkpointLocation: c}", "sink.checkpointLocation", "Use 'checkpoint'"),
    ("trigger: 1 secnd", "trigger", "Use availableNow, or an interval"),
    ("trigger: '\uff11 second'", "trigger", "is not an interval"),
    ("restart: {attempts: -1}", "restart.attempts", "at least 0"),
    ("restart: {attempts: '1_0'}", "restart.attempts", "whole number"),
    ("restart: {pause: soon}", "restart.pause", "is not an interval"),
    ("restart: [5]", "restart", "is not a section of keys"),
    ("metrics: {}", "metrics", "{port: 9400}", MISSING),
    ("metrics: {port: 70000}", "metrics.port", "at most 65535"),
    ("spark: {spark.master: lcoal}", "spark.spark.master", "local[4]"),
]
TRANSFORMS = [
    ("transform: {fromat: json}", "transform.fromat", "Did you mean 'format'?", UNKNOWN),
    ("transform: {format: jason}", "transform.format", "Use 'json', 'csv' or 'string'"),
    ("transform: {schema: -}", "transform.schema", "DDL", MISSING),
    ("transform: {format: string}", "transform.schema", "is not for this format"),
    ("transform: {format: -}", "transform.schema", "is not for this format"),
    ("transform: {function: 'json:loads'}", "transform", "Keep one of sql and function"),
    ("transform: {sql: -}", "transform", "Set one of sql, function, arrow, copy", MISSING),
    ("transform: {sql: -, function: 'no_such:f'}", "transform.function", "PYTHONPATH", FUNCTION),
    ("transform: {sql: -, copy: murmur2}", "transform.copy", "Use 'same' or 'key'"),
    ("transform: {sql: -, copy: same}", "transform.format", "rows that pass through Spark"),
    ("transform: {ordered: false}", "transform.ordered", "rows past the JVM"),
    (
        "transform: {format: -, schema: -, sql: -, copy: same}, source: {minPartitions: 6}",
        "source.minPartitions",
        "set 'transform.ordered: false'",
        "EOS_OPTION_CONFLICT",
    ),
    ("transform: {engine: duckdb}", "transform.format", "rows that pass through Spark"),
    ("transform: {sql: -, arrow: 'json:loads'}", "transform.format", "rows that pass through Spark"),
    ("transform: {engine: polars}", "transform.engine", "Use 'spark' or 'duckdb'"),
    ("transform: {sql: -, function: 'json:loads', engine: duckdb}", "transform.engine", "is for 'sql'"),
    ("transform: {format: -, schema: -, onMalformed: drop}", "transform.onMalformed", "that are parsed"),
    ("transform: {onMalformed: deadLetters}", "sink.deadLetters.topic", "'onMalformed' refers", MISSING),
    (
        "transform: {onMalformed: deadLetters}, sink: {deadLetters.topic: d, offsets.group.id: g}",
        "sink.offsets.group.id",
        "cannot have the offsets",
    ),
]
PARSE = f"format: -, schema: -, parse: {{{AVRO}}}"
REGISTRIES = [
    (f"transform: {{parse: {{{AVRO}}}}}", "transform.format", "besides 'parse'"),
    ("transform: {parse: {format: xml, registry: http://h:1}}", "transform.parse.format", "Use 'avro'"),
    ("transform: {parse: {format: avro}}", "transform.parse.registry", "is missing", MISSING),
    ("transform: {parse: {format: avro, registry: [swordfish]}}", "transform.parse.registry", "is not an address"),
    ("transform: {parse: {format: avro, registry: {url: 'ftp://swordfish'}}}", None, "registry.url", OPTION),
    (f"transform: {{parseKey: {{{AVRO}, version: 0}}}}", "transform.parseKey.version", "is too small"),
    (f"transform: {{encode: {{{AVRO}, autoRegister: false}}}}", "transform.encode.autoRegister", "is for a 'schema'"),
    (f"transform: {{{PARSE}, sql: -, copy: same}}", "transform.parse", "rows that are transformed"),
    (f"transform: {{{PARSE}}}, source: {{subscribe: 'one,two'}}", "transform.parse.subject", "not one topic", MISSING),
    (f"transform: {{encode: {{{AVRO}}}}}, sink: {{topic: -}}", "transform.encode.subject", "not one topic", MISSING),
]
MIRRORS = [
    ("sink: {topic: b}", "sink.topic", "'topics.prefix'"),
    ("source: {subscribe: -, subscribes: a}", "source.subscribes", "Did you mean 'subscribe'", "EOS_OPTION_UNKNOWN"),
    ("sink: {ledger.topics: a}", "sink.ledger.topics", "Did you mean 'ledger.topic'", "EOS_OPTION_UNKNOWN"),
    ("source: {failOnDataLoss: maybe}", "source.failOnDataLoss", "is '…'", OPTION),
    ("source: {subscribe: -}", "source", "'subscribe: \"topic1,topic2\"'", WITHOUT),
    ("sink: {kafka.bootstrap.servers: -}", "sink", "'kafka.bootstrap.servers' is missing", WITHOUT),
    ("kafka: {fetch.max.byte: 1}", "kafka.fetch.max.byte", "Did you mean", "EOS_OPTION_UNKNOWN"),
    ("topics: {settings: {max.message.bytes: 10MB}}", "topics.settings.max.message.bytes", "whole number"),
    ("topics: {settings: {retention.ms: '\uff11'}}", "topics.settings.retention.ms", "whole number"),
    ("topics: {replication: 0}", "topics.replication", "from 1 on"),
    ("topics: {replication: -2}", "topics.replication", "is too small"),
    *((f"topics: {{prefix: '{prefix}'}}", "topics.prefix", "no topic can have") for prefix in ("a b", "a/", "p" * 249)),
    (f"topics: {{prefix: '{'p' * 248}'}}", "topics.prefix", "249"),
    *((f"topics: {{map: '{name}'}}", "topics.map", "no topic can have") for name in ("", "..", "a/b")),
    *(
        (f"topics: {{map: '{name}'}}", "topics.map", "name of a ledger")
        for name in ("own-ledger", "__spark_eos_ledger", "__spark_eos_files")
    ),
]
LINES_OF_JSON = "files: {format: json, schema: -}"
PAST_THE_JVM = "is for records that are parsed"
INGESTS = [
    ("files: {schema: -}", "files.schema", "the format needs it", MISSING),
    ("files: {format: text}", "files.schema", "is not for this format"),
    ("files: {lineSep: x}", "files.lineSep", "is not a known key", UNKNOWN),
    ("files: {locale: de_DE}", "files.locale", "de-DE, with a hyphen"),
    ("files: {timestampFormat: ss.SSSSSSS}", "files.timestampFormat", "more digits of a second"),
    ("files: {multiLine: 1}", "files.multiLine", "neither true nor false"),
    ("files: {quote: «}", "files.quote", "is not one byte"),
    ('files: {quote: "\\0"}', "files.quote", "is not one byte"),
    ('files: {delimiter: "\\r"}', "files.delimiter", "is not one byte"),
    ("files: {delimiter: '||'}", "files.delimiter", "is not one byte"),
    ("files: {delimiter: '\"'}", "files.delimiter", "does not fit 'quote' and 'escape'"),
    ("files: {quote: ' '}", "files.delimiter", "does not fit 'quote' and 'escape'"),
    ("files: {escape: x}", "files.escape", "neither the quote nor a backslash"),
    ("files: {quote: x, escape: '\"'}", "files.escape", "neither the quote nor a backslash"),
    ("files: {unchangedFor: 1 second, marker: .done}", "files.unchangedFor", "is not for files"),
    *(
        (f"files: {{pattern: '{pattern}'}}", "files.pattern", "no name that a file is likely")
        for pattern in ("*.{csv,txt}", "**/*.csv", "in\\*.csv")
    ),
    *(
        (f"files: {{pattern: '{pattern}'}}", "files.pattern", "no file that is taken")
        for pattern in ("_*.csv", "[._]*", "*[z-a]")
    ),
    ("tasks: 0", "tasks", "is too small"),
    ("transform: {format: string}", "transform.format", "is not a known key", UNKNOWN),
    ("transform: -", "transform", "CSV is parsed", MISSING),
    ("transform: {engine: duckdb}", "files.format", "is csv, which only Spark parses"),
    ("transform: {sql: -, arrow: 'os.path:join'}", "files.format", "is csv, which only Spark parses"),
    (LINES_OF_JSON, "files.schema", "the format needs it", MISSING),
    ("transform: -, files: {format: json}", "files.schema", PAST_THE_JVM),
    ("transform: -, files: {format: json, schema: -, locale: de}", "files.locale", PAST_THE_JVM),
    ("transform: -, files: {format: text, schema: -, onMalformed: drop}", "files.onMalformed", PAST_THE_JVM),
    ("transform: {engine: duckdb}, files: {format: json}", "files.schema", PAST_THE_JVM),
    ("sink: {topic: -, deadLetters.topic: t}", "sink.topic", "is missing", MISSING),
    ("sink: {checkpointLocation: /c}", "sink.checkpointLocation", "checkpointLocation", "EOS_OPTION_UNSUPPORTED"),
]
BY_SPARK = "engine: spark, format: json, schema: n INT"
INTO_DELTA = [
    ("target: {merge: [n]}", "target.merge", "rows that pass through Spark"),
    ("target: {schema: merge}", "target.schema", "none of the values"),
    ("target: {mergeSchema: true}", "target.mergeSchema", "is not a known key", UNKNOWN),
    ("transform: {engine: spark}", "transform.engine", "means Spark, which only merges"),
    (f"transform: {{{BY_SPARK}}}", "transform.engine", "means Spark, which only merges"),
    (
        "transform: {engine: spark, sql: -, function: 'json:dumps'}",
        "transform.function",
        "means Spark, which only merges",
    ),
    (
        f"transform: {{{BY_SPARK}}}, target: {{merge: [n], afterRestore: 3}}",
        "target.afterRestore",
        "is only for rows that are appended",
    ),
    ("target: {merge: [n]}, transform: -", "transform", "A merge needs the columns", MISSING),
    (f"transform: {{{BY_SPARK}}}, target: {{merge: [offset]}}", "target.merge", "offset"),
    ("target: {merge: [n, N]}", "target.merge", "names a column twice"),
    ("target: {path: 'a`b'}", "target.path", "has a backtick"),
    ("target: {afterRestore: -1}", "target.afterRestore", "is too small"),
    ("transform: {onMalformed: deadLetters}", "transform.onMalformed", "Use 'fail' or 'drop'"),
    (
        f"transform: {{{BY_SPARK}}}, target: {{merge: [n]}}, spark: {{spark.sql.files.ignoreCorruptFiles: 'true'}}",
        "spark.spark.sql.files.ignoreCorruptFiles",
        "makes rows disappear",
    ),
]
INTO_ICEBERG = [
    ("target: {catalog.uri: [x]}", "target.catalog.uri", "is not one value"),
    ("target: {partitionBy: day(timestamp)}", "target.partitionBy", "is not a list"),
    (f"target: {{afterRollback: {2**63}}}", "target.afterRollback", "is too large"),
    ("transform: {engine: spark}", "transform.engine", "Use 'duckdb'"),
    ("transform: {format: json}", "transform.format", "is not a known key", UNKNOWN),
    ("transform: {function: 'json:dumps'}", "transform.function", "Set 'arrow'", UNKNOWN),
    ("transform: {sql: -, onMalformed: drop}", "transform", "Set one of sql, arrow.", MISSING),
    ("transform: {arrow: 'json:dumps'}", "transform", "Keep one of sql and arrow"),
    ("transform: {sql: SELECT count(*) AS n FROM input}", None, "it groups or aggregates rows", "EOS_TRANSFORM_SQL"),
    (
        f"transform: {{parse: {{{AVRO}}}}}, source: {{subscribe: 'one,two'}}",
        "transform.parse.subject",
        "not one topic",
        MISSING,
    ),
    ("target: {table: flights}", "target.table", "no name of a table", OPTION),
    ("target: {partitionBy: ['bucket(0, key)']}", "target.partitionBy", "truncate(WIDTH, COLUMN)", OPTION),
    ("source: {failOnDataloss: maybe}", "source.failOnDataloss", "true", OPTION),
]
FROM_DELTA = [
    ("source: {startingVersion: latest}", "source.startingVersion", "is not a whole number"),
    *((f"source: {{{name.upper()}: true}}", f"source.{name.upper()}", "Remove it") for name in REFUSED),
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
    ("job", "patch", "key", "says", "condition"),
    [(job, *row, INVALID)[:5] for job, rows in MISTAKES.items() for row in rows],
)
def test_a_mistake_is_named_by_its_key(
    job: str, patch: str, key: str | None, says: str, condition: str, planned: Planned
) -> None:
    """The error has its condition, the key, and what to write instead; no secret of the file is in it."""
    with pytest.raises(EosError) as caught:
        planned(job, patch)
    error = caught.value
    assert (error.condition, error.parameters.get("key")) == (condition, key), error
    assert says in str(error) and SECRET not in str(error)
