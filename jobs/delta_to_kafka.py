"""Delta table → Kafka, exactly once: the rows that are appended to a table, or all its changes in each key's order.

    python -m jobs.delta_to_kafka --conf conf/delta_to_kafka.yaml
    spark-submit jobs/delta_to_kafka.py --conf conf/delta_to_kafka.yaml
    spark-eos run delta_to_kafka --conf job.yaml

docs/delta.md describes the config file.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from dataclasses import dataclass

if not __package__:
    importlib.import_module("runner.script").run_as_module(__file__)  # spark-submit has started this file

from .runner import script

if __name__ == "__main__":
    script.leave_on_signals()

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_eos.kafka.config.librdkafka import check
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.options.parse import sink_options

from .delta.changes import CHANGE_COLUMNS, Changes, check_columns, of_changes
from .delta.errors import named
from .delta.table import Table, check_session, check_settings, no_table, with_delta
from .runner.cluster import JobCluster
from .runner.config import Rejected
from .runner.job import JobCommand, Plan, until_it_ends
from .runner.lines import counted
from .runner.sections import MetricsConfig, RestartConfig, TriggerConfig, beginning, check_kafka_and_spark, with_prefix
from .runner.transform import TransformConfig, transformed

#: Options of Delta's source that this job does not take, and why.
REFUSED = {
    "excludeRegex": "leaves files out",
    "failOnDataLoss": "passes over versions that are gone",
    "ignoreChanges": "repeats rows of files that were rewritten",
    "ignoreDeletes": "gives other rows at a replay, when deleted rows were part of the micro-batch",
    "ignoreFileDeletion": "repeats rows of files that were rewritten",
    "readChangeFeed": "is 'source.changes: true' here",
    "readChangeData": "is 'source.changes: true' here",
    "skipChangeCommits": "leaves out the rows that a MERGE or an overwrite inserts",
    "startingTimestamp": "means other versions after a copy of the table, or when its log has been cleaned",
    "startingVersion": "is 'source.startingVersion' here",
}
_ALLOWED = ("maxBytesPerTrigger", "maxFilesPerTrigger")


@dataclass(frozen=True)
class TableSourceConfig:
    """What to read. ``changes``: the change data feed instead of the appended rows. ``starting_version``: the first
    version of the table that a new query reads; without it, the table as it is, then what follows."""

    path: str
    changes: bool = False
    starting_version: int | None = None
    options: KafkaProperties = KafkaProperties({})

    def __post_init__(self) -> None:
        if self.starting_version is not None and self.starting_version < 0:
            raise Rejected("WRONG_VALUE", "is below 0.", "DESCRIBE HISTORY shows versions.", ["startingVersion"])
        known = {name.lower(): why for name, why in REFUSED.items()}
        for name in self.options:
            if name.lower() in known:
                hint = f"Remove it: it {known[name.lower()]}."
                raise Rejected("WRONG_VALUE", "is an option that this job refuses.", hint, ["options", name])
            if name.lower() not in (allowed.lower() for allowed in _ALLOWED):
                hint = f"Options here: {', '.join(_ALLOWED)}."
                raise Rejected("UNKNOWN_KEY", "is not an option of this job.", hint, ["options", name])


@dataclass(frozen=True)
class FromTableSinkConfig:
    """Where to write; without ``topic``, the column of that name is used. ``options``: further options of the sink.
    ``tasks``: how many tasks, and so transactions, write the changes of a micro-batch."""

    topic: str | None = None
    tasks: int = 4
    options: KafkaProperties = KafkaProperties({})

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise Rejected("WRONG_VALUE", "is below 1.", "Use a number of tasks.", ["tasks"])


@dataclass(frozen=True)
class DeltaToKafkaConfig:
    """The config file of this job. ``kafka``: client settings of the sink, without the prefix ``kafka.``."""

    kafka: KafkaProperties
    source: TableSourceConfig
    transform: TransformConfig
    checkpoint: str
    sink: FromTableSinkConfig = FromTableSinkConfig()
    trigger: TriggerConfig = TriggerConfig(processing_time="10 seconds")
    restart: RestartConfig = RestartConfig()
    metrics: MetricsConfig | None = None
    spark: KafkaProperties = KafkaProperties({})

    def __post_init__(self) -> None:
        check_kafka_and_spark(self.kafka, self.spark)
        check_settings(self.spark)

    def __str__(self) -> str:
        """The job's first line."""
        what = "changes of" if self.source.changes else "rows of"
        target = self.sink.topic or "the topics of the column 'topic'"
        return f"{what} {self.source.path} → {target}; checkpoint {self.checkpoint}; {self.trigger}"


def plan(config: DeltaToKafkaConfig, args: argparse.Namespace) -> Plan:
    """One streaming query from the table to the topics."""

    def start(spark: SparkSession) -> StreamingQuery:
        check_session(spark)
        return write(read(spark, config.source), config)

    version = config.source.starting_version
    first = "the table as it is" if version is None else f"version {version}"
    return Plan(
        str(config),
        [cluster_of(config)],
        with_delta(config.spark),
        until_it_ends(start, config.restart, lambda error: named(error, config.source.path)),
        beginning(config.checkpoint, first),
        config.metrics,
        config.checkpoint,
    )


def cluster_of(config: DeltaToKafkaConfig) -> JobCluster:
    """The cluster that is written to. Raises OptionError for options that the sink would refuse."""
    kafka = sink_options({"checkpointLocation": config.checkpoint} | sink_settings(config)).kafka
    check(kafka, "producer")
    topics = [config.sink.topic] if config.sink.topic else []
    return JobCluster(kafka, topics, topics)


def sink_settings(config: DeltaToKafkaConfig) -> dict[str, str]:
    """Every option of the sink but its checkpoint, by its name."""
    settings = {} if config.sink.topic is None else {"topic": config.sink.topic}
    return settings | with_prefix(config.kafka) | dict(config.sink.options)


def read(spark: SparkSession, source: TableSourceConfig) -> DataFrame:
    """The stream of the table's rows or changes. Raises TableError where there is no such table."""
    table = Table(spark, source.path)
    if not table.exists():
        raise no_table(source.path)
    reader = spark.readStream.format("delta").options(**source.options)
    if source.starting_version is not None:
        reader = reader.option("startingVersion", source.starting_version)
    if not source.changes:
        return reader.load(source.path)
    table.check_change_feed()
    return of_changes(reader, source.path, source.options)


def write(rows: DataFrame, config: DeltaToKafkaConfig) -> StreamingQuery:
    """Appended rows go to the sink as they come; changes are put into order first, which a stream by itself cannot."""
    if config.source.changes:
        changes = Changes(config.source.path, config.checkpoint, config.sink.tasks, sink_settings(config))
        ready = transformed(rows, config.transform, CHANGE_COLUMNS)
        check_columns(ready)
        writer = counted(ready).writeStream.foreachBatch(changes.write)
    else:
        ready = transformed(rows, config.transform)
        writer = counted(ready).writeStream.format("eos-kafka").options(**sink_settings(config))
    return config.trigger.start(writer.option("checkpointLocation", config.checkpoint))


main = JobCommand("delta_to_kafka", __doc__, DeltaToKafkaConfig, plan).main

if __name__ == "__main__":
    sys.exit(main())
