"""Kafka → Delta table, exactly once: appends the rows of topics to a table, or merges them into it by key.

    python -m jobs.kafka_to_delta --conf conf/kafka_to_delta.yaml
    spark-submit jobs/kafka_to_delta.py --conf conf/kafka_to_delta.yaml
    spark-eos run kafka_to_delta --conf job.yaml

docs/delta.md describes the config file.
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
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from spark_eos.kafka.config.librdkafka import check
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.options.parse import stream_options

from .delta.batches import Batches
from .delta.errors import named
from .delta.merge import APPLICATION, MergeConfig, Merger, check_keys, table_columns
from .delta.table import (
    Table,
    check_batches,
    check_names,
    check_session,
    check_settings,
    create,
    fit,
    nullable,
    with_delta,
)
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
)
from .runner.transform import TransformConfig, result

#: Under which appends are committed: as by Delta's own sink.
_APPEND = "{}"


@dataclass(frozen=True)
class TableTargetConfig:
    """The table. Without ``merge``, rows are appended. ``partition_by`` and ``properties`` are of a table that the job
    creates."""

    path: str
    merge: MergeConfig | None = None
    schema_changes: Literal["fail", "evolve"] = "fail"
    partition_by: tuple[str, ...] = ()
    properties: KafkaProperties = KafkaProperties({})

    def __post_init__(self) -> None:
        if "`" in self.path:
            raise Rejected("WRONG_VALUE", "has a backtick, which Delta does not take.", "Use another path.", ["path"])


@dataclass(frozen=True)
class KafkaToDeltaConfig:
    """The config file of this job. ``kafka``: client settings of the source, without the prefix ``kafka.``."""

    kafka: KafkaProperties
    source: TopicsConfig
    target: TableTargetConfig
    checkpoint: str
    transform: TransformConfig | None = None
    group: str | None = None
    trigger: TriggerConfig = TriggerConfig(processing_time="10 seconds")
    restart: RestartConfig = RestartConfig()
    metrics: MetricsConfig | None = None
    spark: KafkaProperties = KafkaProperties({})

    def __post_init__(self) -> None:
        check_kafka_and_spark(self.kafka, self.spark)
        check_settings(self.spark)
        if self.target.merge and self.transform is None:
            raise Rejected(
                "MISSING_KEY",
                "'transform' is missing.",
                "A merge needs the columns topic, partition, offset and deleted, beside those of the table.",
            )

    def __str__(self) -> str:
        """The job's first line."""
        merge = self.target.merge
        how = f"merged by {', '.join(merge.keys)} into" if merge else "appended to"
        group = f"group {self.group}" if self.group else "no group"
        topics = ", ".join(self.source.topics)
        return f"{topics} → {how} {self.target.path}; {group}; checkpoint {self.checkpoint}; {self.trigger}"


def plan(config: KafkaToDeltaConfig, args: argparse.Namespace) -> Plan:
    """One streaming query from the topics to the table."""

    def start(spark: SparkSession) -> StreamingQuery:
        check_session(spark)
        rows = table_rows(read(spark, config), config)
        table = Table(spark, config.target.path)
        application = APPLICATION if config.target.merge else _APPEND
        prepare(table, rows, config.target)
        check_batches(table, config.checkpoint, application)
        return config.trigger.start(writer(counted(rows), config))

    return Plan(
        str(config),
        [cluster_of(config)],
        with_delta(config.spark),
        until_it_ends(start, config.restart, lambda error: named(error, config.target.path)),
        beginning(config.checkpoint, config.source.starting_offsets),
        config.metrics,
        config.checkpoint,
    )


def cluster_of(config: KafkaToDeltaConfig) -> JobCluster:
    """The cluster that is read. Raises OptionError for options that the source would refuse."""
    kafka = stream_options(source_settings(config)).kafka
    check(kafka, "consumer")
    topics = config.source.topics
    return JobCluster(kafka, topics, topics if is_new(config.checkpoint) else [])


def source_settings(config: KafkaToDeltaConfig) -> dict[str, str]:
    """Every option of the source, by its name."""
    settings = config.source.settings(config.kafka)
    if config.group is not None:
        settings["offsets.group.id"] = config.group
    if config.transform is None:
        settings["includeHeaders"] = "true"
    return settings | dict(config.source.options)


def read(spark: SparkSession, config: KafkaToDeltaConfig) -> DataFrame:
    return spark.readStream.format("eos-kafka").options(**source_settings(config)).load()


def table_rows(source: DataFrame, config: KafkaToDeltaConfig) -> DataFrame:
    """The rows for the table. Without a transformation, these are the source's own columns."""
    return source if config.transform is None else result(source, config.transform)


def prepare(table: Table, rows: DataFrame, target: TableTargetConfig) -> None:
    """Create the table where there is none; else see whether it fits these rows. Raises TableError, SchemaError."""
    check_names(rows.schema)
    columns = nullable(table_columns(rows, target.merge) if target.merge else rows.schema)
    if not table.exists():
        create(table, columns, target.partition_by, target.properties)
    table.check_remembers()
    fit(table, columns, evolve=target.schema_changes == "evolve")
    if target.merge:
        check_keys(target.merge, rows.schema, table.schema())


def writer(rows: DataFrame, config: KafkaToDeltaConfig) -> DataStreamWriter:
    """Each micro-batch is appended or merged in one commit of the table."""
    path, checkpoint, merge = config.target.path, config.checkpoint, config.target.merge
    work = Merger(path, merge, checkpoint).merge if merge else Appender(path, checkpoint).append
    return rows.writeStream.option("checkpointLocation", checkpoint).foreachBatch(work)


@dataclass(frozen=True)
class Appender:
    """Appends a query's micro-batches, each once."""

    path: str
    checkpoint: str

    def append(self, rows: DataFrame, batch: int) -> None:
        """The function of foreachBatch."""

        def write() -> None:
            rows.write.format("delta").mode("append").save(self.path)

        Batches(self.path, self.checkpoint, _APPEND).once(rows.sparkSession, batch, write)


main = JobCommand("kafka_to_delta", __doc__, KafkaToDeltaConfig, plan).main

if __name__ == "__main__":
    sys.exit(main())
