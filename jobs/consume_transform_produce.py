"""Kafka → Spark → Kafka, exactly once: reads topics, transforms the rows by SQL or a function, writes them to topics.

    python -m jobs.consume_transform_produce --conf conf/consume_transform_produce.yaml
    spark-submit jobs/consume_transform_produce.py --conf conf/consume_transform_produce.yaml
    spark-eos run consume_transform_produce --conf job.yaml

docs/job.md describes the config file.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from dataclasses import replace
from typing import Literal, Self

if __name__ == "__main__":
    script = ".runner.script" if __package__ else "runner.script"
    importlib.import_module(script, __package__).begin(__file__, __package__)

from pydantic import Field, model_validator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from spark_eos.checkpoint.settings import of_spark
from spark_eos.errors import stop
from spark_eos.kafka.admin.topics import cluster_id
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.options.parse import SourceOptions
from spark_eos.pipelines.copy.checks import check_source
from spark_eos.pipelines.copy.start import planned

from .runner.checks import PY_FILES, Check, JobCluster, output_check
from .runner.job import JobCommand, Plan, is_new, query_plan
from .runner.lines import counted
from .runner.models import QueryJob
from .runner.options import (
    CHECKPOINT,
    begins,
    only_topic,
    option,
    options_of,
    refuse,
    selected,
    sink_of,
    source_of,
    source_options_of,
    topics_of,
)
from .runner.registry import ColumnCodecs, EncodedColumn, check_topic
from .runner.transform import Letters, transformed
from .runner.transforms import ParsedTransform
from .runner.values import NO_PROPERTIES, Properties, Rejected, Trigger, missing

FORMATS = ("eos-kafka", "kafka")
_LETTERS, _GROUP = "deadLetters.topic", "offsets.group.id"


class TopicsTransform(ParsedTransform):
    """Records may also be copied as they are, and rows written with schemas of a registry."""

    #: Records are [copied as they are](job.md#past-the-jvm), to the partition of the same number, or to the one that
    #: [their key chooses](copy.md#copies).
    copied: Literal["same", "key"] | None = Field(None, alias="copy")
    #: Past the JVM: `false` lets several tasks read a partition, whose rows then lose their order.
    ordered: bool = True
    #: How values are [encoded](job.md#schema-registry) with schemas of a registry.
    encode: EncodedColumn | None = None
    #: As `encode`, for the keys of records.
    encode_key: EncodedColumn | None = None

    @model_validator(mode="after")
    def _registry(self) -> Self:
        sections = {
            "parse": self.parse,
            "parseKey": self.parse_key,
            "encode": self.encode,
            "encodeKey": self.encode_key,
        }
        given = [key for key, section in sections.items() if section is not None]
        if self.copied is not None and given:
            raise Rejected(
                "is for rows that are transformed.", "Remove it, or set 'sql', 'arrow' or 'function'.", given[:1]
            )
        return self

    @model_validator(mode="after")
    def _order(self) -> Self:
        if not self.ordered and not self.is_copy:
            message = "is for rows past the JVM: elsewhere, 'minPartitions' splits partitions by itself."
            raise Rejected(message, "Remove it, or set 'copy', 'arrow' or 'engine: duckdb'.", ["ordered"])
        return self

    @property
    def ways(self) -> dict[str, object]:
        """The keys of which just one is set."""
        return super().ways | {"copy": self.copied}

    @property
    def by_registry(self) -> bool:
        """True if keys or values have schemas of a registry, in the input or the output."""
        return self.decodes or self.encode is not None or self.encode_key is not None

    @property
    def is_copy(self) -> bool:
        """True if no row passes through Spark."""
        return super().is_copy or self.copied is not None


class ConsumeTransformProduce(QueryJob):
    """The config file of this job."""

    #: [Options of the source](options.md#source). `startingOffsets` is `earliest` by default; `offsets.group.id` names
    #: a group that is told how far the query is.
    source: Properties
    transform: TopicsTransform
    #: [Options of the sink](options.md#sink), such as `topic`.
    sink: Properties = NO_PROPERTIES
    trigger: Trigger = "1 second"

    @model_validator(mode="after")
    def _sections(self) -> Self:
        refuse("sink", self.sink, CHECKPOINT)
        self.transform.check_subjects(self.only_source)
        check_topic(self.topic, self.transform.encode, "transform.encode")
        check_topic(self.topic, self.transform.encode_key, "transform.encodeKey")
        if self.transform.on_malformed == "deadLetters":
            if option(self.sink, _LETTERS) is None:
                hint = "Name the topic there, or set 'onMalformed' to fail or drop."
                raise missing(["sink", _LETTERS], "is missing, to which 'onMalformed' refers.", hint)
            if not self.transform.is_copy and option(self.sink, _GROUP) is not None:
                raise Rejected(
                    "cannot have the offsets: with 'onMalformed: deadLetters', Spark reads the input as two sources, "
                    "which may be at different offsets.",
                    "Remove it, or set 'onMalformed' to fail or drop.",
                    ["sink", _GROUP],
                )
        return self

    @property
    def topic(self) -> str | None:
        """The topic for all rows, if it is set."""
        return option(self.sink, "topic")

    @property
    def only_source(self) -> str | None:
        """The topic that is read, if it is one and named."""
        return only_topic(self.source)

    @property
    def letters(self) -> str | None:
        """The topic to which Spark's plan sends rows that do not parse, if there is one."""
        by_plan = self.transform.on_malformed == "deadLetters" and not self.transform.is_copy
        return option(self.sink, _LETTERS) if by_plan else None

    def source_options(self, source_format: str) -> dict[str, str]:
        """Return every option of the source, by its name."""
        committed = {"kafka.isolation.level": "read_committed"} if source_format == "kafka" else {}
        return committed | source_options_of(self.kafka, self.source)

    def sink_options(self, sink_format: str) -> dict[str, str]:
        """Return every option of the sink, by its name."""
        options = options_of(self.kafka, self.sink) | {"checkpointLocation": self.checkpoint}
        # With a topic for dead letters, each row has its own. Spark's sink commits no offsets.
        left_out = [*(["topic"] if self.letters else []), *([_GROUP] if sink_format == "kafka" else [])]
        return {name: value for name, value in options.items() if name.lower() not in left_out}


def plan(config: ConsumeTransformProduce, args: argparse.Namespace) -> Plan:
    """Plan one streaming query from topics to topics."""
    if config.transform.is_copy and {args.source, args.sink} != {FORMATS[0]}:
        raise stop("EOS_CONFIG_INVALID_VALUE.connector", key="transform")

    def start(spark: SparkSession) -> StreamingQuery:
        if config.transform.is_copy:
            return start_copy(spark, config)
        letters = config.letters
        rows = transformed(
            read(spark, config, args.source),
            config.transform,
            letters=None if letters is None else Letters(letters, cluster_id(broker_client(reads.kafka))),
            topic=config.topic,
            columns=registry_columns(spark, config),
        )
        return write(counted(rows, letters), config, args.sink)

    clusters = clusters_of(config, args.source, args.sink)
    reads = _reads(config)
    config.transform.check_before_spark(reads)
    target = config.topic or "the topics of the column 'topic'"
    group = option(config.sink, _GROUP)
    what = f"{selected(reads)} → {target}; {f'group {group}' if group else 'no group'}"
    first = begins(reads, config.source_options(FORMATS[0]))
    return query_plan(config, what, clusters, start, first, checks=checks_of(config) if args.sink == FORMATS[0] else ())


def checks_of(config: ConsumeTransformProduce) -> list[Check]:
    """Return the checks before Spark starts, of the sink and of a transform past the JVM."""
    sink = sink_of(config.sink, config.sink_options(FORMATS[0]))
    checks = [output_check(replace(sink, topic=config.topic))]
    if config.transform.is_copy and not config.transform.by_registry and PY_FILES not in config.spark:
        checks.append(
            Check("the transform, and whether the options of both ends go together", lambda: try_copy(config))
        )
    return checks


def try_copy(config: ConsumeTransformProduce) -> None:
    """Run the checks of a copy's start, except for the registry. Raises EosError."""
    transform = config.transform
    planned(
        of_spark(config.spark),
        config.source_options(FORMATS[0]),
        config.sink_options(FORMATS[0]),
        transform.function_past_spark(),
        ordered=transform.ordered,
        partition=transform.copied or "same",
        on_malformed=transform.on_malformed,
    )


def registry_columns(spark: SparkSession, config: ConsumeTransformProduce) -> ColumnCodecs:
    """Return codecs by versions that are fixed now, and by schemas that are registered. Raises EosError."""
    transform, topic = config.transform, config.topic
    read = transform.decodings(spark, config.checkpoint, config.only_source)
    return ColumnCodecs(
        value_in=read.get("value"),
        key_in=read.get("key"),
        value_out=None if transform.encode is None else transform.encode.encoding(topic, key=False),
        key_out=None if transform.encode_key is None else transform.encode_key.encoding(topic, key=True),
    )


def clusters_of(config: ConsumeTransformProduce, source_format: str, sink_format: str) -> list[JobCluster]:
    """Return the clusters that eos-kafka reads from and writes to, one or two, and the topics that must be there.

    Raises OptionError for options that source or sink would refuse.
    """
    topics: dict[KafkaProperties, list[str]] = {}
    required: dict[KafkaProperties, list[str]] = {}
    reads, sink = _reads(config), sink_of(config.sink, config.sink_options(FORMATS[0])).kafka
    if source_format == "eos-kafka":
        topics.setdefault(reads.kafka, []).extend(topics_of(reads))
        if is_new(config):  # for a query that continues, the source detects losses
            required.setdefault(reads.kafka, []).extend(topics_of(reads))
    if sink_format == "eos-kafka":
        targets = [topic for topic in (config.topic, option(config.sink, _LETTERS)) if topic]
        topics.setdefault(sink, []).extend(targets)
        required.setdefault(sink, []).extend(targets)
    return [JobCluster(kafka, names, required.get(kafka, [])) for kafka, names in topics.items()]


def _reads(config: ConsumeTransformProduce) -> SourceOptions:
    """Return the source's options, checked. Raises OptionError."""

    def in_order(options: SourceOptions) -> None:
        if config.transform.is_copy:
            keeps_order = "Remove it, or set 'transform.ordered: false'."
            check_source(options, ordered=config.transform.ordered, keeps_order=keeps_order)

    return source_of(config.source, config.source_options(FORMATS[0]), in_order)


def start_copy(spark: SparkSession, config: ConsumeTransformProduce) -> StreamingQuery:
    """Return the query whose tasks copy, call a function of Arrow batches, or run SQL by DuckDB."""
    transform, sink = config.transform, config.sink_options(FORMATS[0])
    columns = registry_columns(spark, config) if transform.by_registry else ColumnCodecs()
    return spark_eos.copy(
        spark,
        source=config.source_options(FORMATS[0]),
        sink={name: value for name, value in sink.items() if name != "checkpointLocation"},
        checkpoint=config.checkpoint,
        transform=transform.past_spark(),
        trigger=config.trigger_arguments,
        partition=transform.copied or "same",
        ordered=transform.ordered,
        on_malformed=transform.on_malformed,
        decode=columns.decode,
        encode=columns.encode,
    )


def read(spark: SparkSession, config: ConsumeTransformProduce, source_format: str) -> DataFrame:
    return spark.readStream.format(source_format).options(**config.source_options(source_format)).load()


def write(rows: DataFrame, config: ConsumeTransformProduce, sink_format: str) -> StreamingQuery:
    return config.start(rows.writeStream.format(sink_format).options(**config.sink_options(sink_format)))


def _options(parser: argparse.ArgumentParser) -> None:
    formats = "'kafka' is Spark's built-in connector, whose jars must then be there (spark.jars)"
    parser.add_argument("--source", choices=FORMATS, default=FORMATS[0], help=f"format to read with; {formats}")
    parser.add_argument("--sink", choices=FORMATS, default=FORMATS[0], help="format to write with; as above")


main = JobCommand("consume_transform_produce", __doc__, ConsumeTransformProduce, plan, _options).main

if __name__ == "__main__":
    sys.exit(main())
