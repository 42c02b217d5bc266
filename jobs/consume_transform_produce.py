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
from dataclasses import dataclass
from typing import Literal

if not __package__:
    importlib.import_module("runner.script").run_as_module(__file__)  # spark-submit has started this file

from .runner import script

if __name__ == "__main__":
    script.leave_on_signals()

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from spark_eos.direct.checks import check_source
from spark_eos.errors import ConfigError
from spark_eos.kafka.config.librdkafka import check
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.options.parse import sink_options, stream_options

from .runner.cluster import JobCluster
from .runner.config import Rejected
from .runner.job import JobCommand, Plan, until_it_ends
from .runner.lines import counted
from .runner.sections import (
    MetricsConfig,
    RestartConfig,
    TopicsConfig,
    TriggerConfig,
    beginning,
    check_kafka_and_spark,
    is_new,
    with_prefix,
)
from .runner.transform import TransformOrArrowConfig, imported, transformed

FORMATS = ("eos-kafka", "kafka")


@dataclass(frozen=True)
class OrderedTopicsConfig(TopicsConfig):
    """``ordered``: the rows of a partition keep their order. If not, where no row passes through Spark, options such
    as ``minPartitions`` let several tasks read it."""

    ordered: bool = True


@dataclass(frozen=True)
class FromTopicsSinkConfig:
    """Where to write; without ``topic``, the column of that name is used. ``partition``: of copies, what chooses the
    partition. ``options``: further options of the sink."""

    topic: str | None = None
    partition: Literal["same", "key"] = "same"
    options: KafkaProperties = KafkaProperties({})


@dataclass(frozen=True)
class ConsumeTransformProduceConfig:
    """The config file of this job. ``kafka``: client settings of both sides, without the prefix ``kafka.``."""

    kafka: KafkaProperties
    source: OrderedTopicsConfig
    transform: TransformOrArrowConfig | Literal["none"]
    checkpoint: str
    group: str | None = None
    sink: FromTopicsSinkConfig = FromTopicsSinkConfig()
    trigger: TriggerConfig = TriggerConfig(processing_time="1 second")
    restart: RestartConfig = RestartConfig()
    metrics: MetricsConfig | None = None
    spark: KafkaProperties = KafkaProperties({})

    def __post_init__(self) -> None:
        check_kafka_and_spark(self.kafka, self.spark)
        if self.sink.partition != "same" and self.transform != "none":
            raise Rejected(
                "WRONG_VALUE",
                "is for copies: keys choose the partitions of transformed rows, or the column 'partition' does.",
                "Remove it, or set 'transform: none'.",
                ["sink", "partition"],
            )
        if not self.source.ordered and not self.is_direct:
            raise Rejected(
                "WRONG_VALUE",
                "is for rows that do not pass through Spark: of others, 'minPartitions' splits partitions by itself.",
                "Remove it, or set 'transform: none' or 'transform.arrow'.",
                ["source", "ordered"],
            )
        if self.group and self.letters is not None:
            raise Rejected(
                "WRONG_VALUE",
                "cannot have the offsets: with a topic for 'transform.parse.onMalformed', Spark reads the input as two "
                "sources, which may be at different offsets.",
                "Remove it, or set 'onMalformed' to fail or drop.",
                ["group"],
            )

    @property
    def letters(self) -> str | None:
        """The topic for rows that do not parse, if there is one."""
        return None if self.transform == "none" else self.transform.letters

    @property
    def is_direct(self) -> bool:
        """Whether no row passes through Spark."""
        return self.transform == "none" or self.transform.arrow is not None

    def __str__(self) -> str:
        """The job's first line."""
        target = self.sink.topic or "the topics of the column 'topic'"
        group = f"group {self.group}" if self.group else "no group"
        return f"{', '.join(self.source.topics)} → {target}; {group}; checkpoint {self.checkpoint}; {self.trigger}"


def plan(config: ConsumeTransformProduceConfig, args: argparse.Namespace) -> Plan:
    """One streaming query from the topics to the topics."""
    if config.is_direct and {args.source, args.sink} != {FORMATS[0]}:
        raise ConfigError(
            "EOS_CONFIG_WRONG_VALUE",
            "'transform' lets no row pass through Spark, so Spark's own connector cannot read or write them.",
            hint="Leave out --source and --sink, or set 'transform.sql' or 'transform.function'.",
            key="transform",
        )

    def start(spark: SparkSession) -> StreamingQuery:
        if config.transform == "none" or config.transform.arrow is not None:
            return start_direct(spark, config)
        rows = transformed(read(spark, config, args.source), config.transform, letters=True, topic=config.sink.topic)
        return write(counted(rows, config.letters), config, args.sink)

    return Plan(
        str(config),
        clusters_of(config, args.source, args.sink),
        config.spark,
        until_it_ends(start, config.restart),
        beginning(config.checkpoint, config.source.starting_offsets),
        config.metrics,
        config.checkpoint,
    )


def clusters_of(config: ConsumeTransformProduceConfig, source_format: str, sink_format: str) -> list[JobCluster]:
    """The clusters that eos-kafka reads from and writes to, one or two, and the topics that must be there.

    Raises OptionError for options that source or sink would refuse.
    """
    topics: dict[KafkaProperties, list[str]] = {}
    required: dict[KafkaProperties, list[str]] = {}
    if source_format == "eos-kafka":
        reads = stream_options(source_settings(config, source_format))
        if config.is_direct:
            check_source(reads, ordered=config.source.ordered, keeps_order="Remove it, or set 'source.ordered: false'.")
        source = reads.kafka
        check(source, "consumer")
        topics.setdefault(source, []).extend(config.source.topics)
        if is_new(config.checkpoint):  # for a query that continues, the source detects losses
            required.setdefault(source, []).extend(config.source.topics)
    if sink_format == "eos-kafka":
        sink = sink_options(sink_settings(config, sink_format)).kafka
        check(sink, "producer")
        targets = [topic for topic in (config.sink.topic, config.letters) if topic]
        topics.setdefault(sink, []).extend(targets)
        required.setdefault(sink, []).extend(targets)
    return [JobCluster(kafka, names, required.get(kafka, [])) for kafka, names in topics.items()]


def start_direct(spark: SparkSession, config: ConsumeTransformProduceConfig) -> StreamingQuery:
    """The query whose tasks copy, or call a function of Arrow batches."""
    arrow = None if config.transform == "none" else config.transform.arrow
    sink = sink_settings(config, FORMATS[0])
    return spark_eos.direct(
        spark,
        source=source_settings(config, FORMATS[0]),
        sink={name: value for name, value in sink.items() if name != "checkpointLocation"},
        checkpoint=config.checkpoint,
        transform=None if arrow is None else imported(arrow, "transform.arrow"),
        trigger=config.trigger.arguments,
        partition=config.sink.partition,
        ordered=config.source.ordered,
    )


def read(spark: SparkSession, config: ConsumeTransformProduceConfig, source_format: str) -> DataFrame:
    return spark.readStream.format(source_format).options(**source_settings(config, source_format)).load()


def source_settings(config: ConsumeTransformProduceConfig, source_format: str) -> dict[str, str]:
    """Every option of the source, by its name."""
    settings = config.source.settings(config.kafka)
    if source_format == "kafka":
        settings["kafka.isolation.level"] = "read_committed"
    return settings | dict(config.source.options)


def write(rows: DataFrame, config: ConsumeTransformProduceConfig, sink_format: str) -> StreamingQuery:
    return config.trigger.start(rows.writeStream.format(sink_format).options(**sink_settings(config, sink_format)))


def sink_settings(config: ConsumeTransformProduceConfig, sink_format: str) -> dict[str, str]:
    """Every option of the sink, by its name."""
    settings = {"checkpointLocation": config.checkpoint}
    if config.sink.topic is not None and config.letters is None:  # else each row has its own
        settings["topic"] = config.sink.topic
    if config.group is not None and sink_format == "eos-kafka":
        settings["offsets.group.id"] = config.group
    return settings | with_prefix(config.kafka) | dict(config.sink.options)


def _options(parser: argparse.ArgumentParser) -> None:
    formats = "'kafka' is Spark's built-in connector, whose jars must then be there (spark.jars)"
    parser.add_argument("--source", choices=FORMATS, default=FORMATS[0], help=f"format to read with; {formats}")
    parser.add_argument("--sink", choices=FORMATS, default=FORMATS[0], help="format to write with; as above")


main = JobCommand("consume_transform_produce", __doc__, ConsumeTransformProduceConfig, plan, _options).main

if __name__ == "__main__":
    sys.exit(main())
