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
from collections.abc import Mapping
from pathlib import Path
from typing import Self

if __name__ == "__main__":
    script = ".runner.script" if __package__ else "runner.script"
    importlib.import_module(script, __package__).begin(__file__, __package__)

from pydantic import model_validator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import of_session, of_spark
from spark_eos.checkpoint.stores import local_store
from spark_eos.options.parse import sink_options
from spark_eos.pipelines.copy.from_table.start import check_new, reads_files

from .delta import ways
from .delta.changes import CHANGE_COLUMNS, Changes, check_columns, of_changes
from .delta.errors import named
from .delta.table import Table, check_session, check_settings, names_delta, no_table, with_delta
from .runner.checks import Check, output_check
from .runner.cluster import JobCluster
from .runner.job import JobCommand, Plan, query_plan
from .runner.lines import counted, say
from .runner.models import QueryJob, Section
from .runner.options import CHECKPOINT, option, options_of, refuse, sink_of
from .runner.past_spark import PastSparkTransform, Way
from .runner.transform import transformed
from .runner.values import NO_PROPERTIES, AtLeastOne, AtLeastZero, Properties, Rejected, Text

#: Options of Delta's source that this job does not take, and why.
REFUSED = {
    "excludeRegex": "leaves files out",
    "failOnDataLoss": "passes over versions that are gone",
    "ignoreChanges": "repeats rows of files that were rewritten",
    "ignoreDeletes": "gives other rows at a replay, when deleted rows were part of the micro-batch",
    "ignoreFileDeletion": "repeats rows of files that were rewritten",
    "readChangeData": "is 'readChangeFeed: true' here",
    "skipChangeCommits": "leaves out the rows that a MERGE or an overwrite inserts",
    "startingTimestamp": "means other versions after a copy of the table, or when its log has been cleaned",
}


class TableSource(Section):
    """What to read, by the names that Delta's source has."""

    #: The table.
    path: Text
    #: Read the table's changes instead of its appended rows.
    read_change_feed: bool = False
    #: First version of the table that a new query reads; without it, the table as it is, then what follows.
    starting_version: AtLeastZero | None = None
    #: Maximum number of files in a micro-batch; the default is 1000, and no limit for changes through Spark.
    max_files_per_trigger: AtLeastOne | None = None
    #: About how many bytes a micro-batch reads, such as `1g`, which is the default past the JVM.
    max_bytes_per_trigger: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _refused(cls, data: object) -> object:
        known = {name.lower(): why for name, why in REFUSED.items()}
        for name in data if isinstance(data, dict) else ():
            if why := known.get(name.lower()):
                raise Rejected("is an option that this job refuses.", f"Remove it: it {why}.", [name])
        return data

    @property
    def limits(self) -> dict[str, str]:
        """Options of Delta's source that limit a micro-batch, which a copy has, too."""
        limits = {"maxFilesPerTrigger": self.max_files_per_trigger, "maxBytesPerTrigger": self.max_bytes_per_trigger}
        return {name: str(value) for name, value in limits.items() if value is not None}

    @property
    def of_copy(self) -> dict[str, str]:
        """Options of a copy from the table."""
        begins = {} if self.starting_version is None else {"startingVersion": str(self.starting_version)}
        changes = {"readChangeFeed": "true"} if self.read_change_feed else {}
        return {"format": "delta", "path": self.path, **begins, **changes, **self.limits}


class DeltaToKafka(QueryJob):
    """The config file of this job."""

    source: TableSource
    #: Without it, the table's columns are those of the sink, and rows are read
    #: [past the JVM](delta.md#from-a-table-past-the-jvm) where the table allows it.
    transform: PastSparkTransform | None = None
    #: [Options of the sink](options.md#sink), such as `topic`.
    sink: Properties = NO_PROPERTIES
    #: How many tasks, and so transactions, write the changes of a micro-batch through Spark.
    tasks: AtLeastOne = 4

    @model_validator(mode="after")
    def _sections(self) -> Self:
        check_settings(self.spark)
        refuse("sink", self.sink, CHECKPOINT)
        return self

    def extras(self) -> list[str]:
        """See `Job.extras`. Past the JVM, delta-rs reads the table."""
        own = [] if self.transform is None else self.transform.extras()
        return [*super().extras(), *own, *(["delta"] if self.needs_spark is not None else [])]

    @property
    def is_copy(self) -> bool:
        """Whether rows must not pass through Spark."""
        return self.transform is not None and self.transform.is_copy

    @property
    def needs_spark(self) -> str | None:
        """Why rows have to pass through Spark, if they have to."""
        if self.transform is None or self.transform.is_copy:
            return None
        return f"'transform.{'sql' if self.transform.sql is not None else 'function'}' is run by Spark"

    @property
    def may_use_delta(self) -> bool:
        """Whether the session has to know Delta: rows pass through it, or may do so."""
        return self.needs_spark is not None or (not self.is_copy and names_delta(self.spark))

    def sink_options(self) -> dict[str, str]:
        """Every option of the sink but its checkpoint, by its name."""
        return options_of(self.kafka, self.sink)


def plan(config: DeltaToKafka, args: argparse.Namespace) -> Plan:
    """One streaming query from the table to the topics."""
    source, topic = config.source, option(config.sink, "topic")
    sink = sink_of(config.sink, {"checkpointLocation": config.checkpoint} | config.sink_options())

    def start(spark: SparkSession) -> StreamingQuery:
        way = way_of(of_session(spark), config)
        say(str(way))
        if way.past_jvm:
            return start_copy(spark, config)
        check_session(spark)
        return write(read(spark, source), config)

    target = topic or "the topics of the column 'topic'"
    what = "changes of" if source.read_change_feed else "rows of"
    first = "the table as it is" if source.starting_version is None else f"version {source.starting_version}"
    topics = [topic] if topic else []
    return query_plan(
        config,
        f"{what} {source.path} → {target}",
        [JobCluster(sink.kafka, topics, topics)],
        start,
        first,
        spark=with_delta(config.spark) if config.may_use_delta else config.spark,
        named=lambda error: named(error, source.path),
        checks=[*table_checks(config), output_check(sink)],
    )


def table_checks(config: DeltaToKafka) -> list[Check]:
    """The check of a table on a local disk: how another store is reached, the session knows."""
    store = local_store(config.source.path)
    if store is None or local_store(config.checkpoint) is None:
        return []

    def look() -> None:
        if not Path(store.root, "_delta_log").is_dir():
            raise no_table(config.source.path)
        way_of(of_spark(config.spark), config)

    return [Check(f"the table {config.source.path}", look)]


def way_of(session: Mapping[str, str], config: DeltaToKafka) -> Way:
    """By the config file, the checkpoint, and, for a new query that may go either way, the table. ``session``: its
    settings of file systems. Raises EosError."""
    writes = sink_options({"checkpointLocation": config.checkpoint} | config.sink_options(), session)
    return ways.chosen(
        config.source.path,
        config.needs_spark,
        is_copy=config.is_copy,
        began=reads_files(Checkpoint(config.checkpoint, writes.storage)),
        check_new=lambda: check_new(config.source.of_copy, session),
    )


def start_copy(spark: SparkSession, config: DeltaToKafka) -> StreamingQuery:
    """The query whose tasks read the table's files."""
    return spark_eos.copy(
        spark,
        source=config.source.of_copy,
        sink=config.sink_options(),
        checkpoint=config.checkpoint,
        transform=None if config.transform is None else config.transform.past_spark(),
        trigger=config.trigger_arguments,
    )


def read(spark: SparkSession, source: TableSource) -> DataFrame:
    """The stream of the table's rows or changes. Raises TableError where there is no such table."""
    table = Table(spark, source.path)
    if not table.exists():
        raise no_table(source.path)
    reader = spark.readStream.format("delta").options(**source.limits)
    if source.starting_version is not None:
        reader = reader.option("startingVersion", source.starting_version)
    if not source.read_change_feed:
        return reader.load(source.path)
    table.check_change_feed()
    return of_changes(reader, source.path, source.limits)


def write(rows: DataFrame, config: DeltaToKafka) -> StreamingQuery:
    """Appended rows go to the sink as they come; changes are put into order first, which a stream by itself cannot."""
    if config.source.read_change_feed:
        changes = Changes(config.source.path, config.checkpoint, config.tasks, config.sink_options())
        ready = transformed(rows, config.transform, CHANGE_COLUMNS)
        check_columns(ready)
        writer = counted(ready).writeStream.foreachBatch(changes.write)
    else:
        ready = transformed(rows, config.transform)
        writer = counted(ready).writeStream.format("eos-kafka").options(**config.sink_options())
    return config.start(writer.option("checkpointLocation", config.checkpoint))


main = JobCommand("delta_to_kafka", __doc__, DeltaToKafka, plan).main

if __name__ == "__main__":
    sys.exit(main())
