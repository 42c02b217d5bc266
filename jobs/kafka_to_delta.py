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
from typing import TYPE_CHECKING, Literal, Self

if __name__ == "__main__":
    script = ".runner.script" if __package__ else "runner.script"
    importlib.import_module(script, __package__).begin(__file__, __package__)

from pydantic import NonNegativeInt, model_validator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import spark_eos

from .delta.batches import Batches
from .delta.errors import named
from .delta.merge import APPLICATION, Keys, Merger, check_keys, table_columns
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
from .runner.job import JobCommand, Plan, is_new, query_plan
from .runner.lines import counted
from .runner.models import QueryJob, Section
from .runner.options import begins, only_topic, option, selected, source_of, source_options_of, topics_of
from .runner.past_spark import EngineTransform
from .runner.registry import Columns, check_topic
from .runner.transform import result
from .runner.values import Properties, Rejected, Text, missing, unknown

if TYPE_CHECKING:
    from spark_eos.registry.decoding import Decoding

#: Under which appends are committed: as by Delta's own sink.
_APPEND = "{}"
_PROPERTY = "delta."


class TableTransform(EngineTransform):
    """Of a job that has no topic for dead letters."""

    #: What to do with a value that does not match the schema, or a record that a transform past the JVM
    #: [rejects](copy.md#records-that-a-transform-rejects): [fail](job.md#parsing), or leave it out.
    on_malformed: Literal["fail", "drop"] = "fail"


class TableTarget(Section, extra="allow"):
    """The table. Most names are those of Delta's writer. Further keys are properties ``delta.…`` of a table that the
    job creates."""

    __pydantic_extra__: dict[str, str]

    #: The table. It is created where there is none; then `delta.…` keys are its properties.
    path: Text
    #: List of the columns by which rows are [merged](delta.md#merges); without it, they are appended.
    merge: Keys | None = None
    #: Whether new columns of the result are added to the table; without it, they are an error.
    merge_schema: bool = False
    #: List of the partition columns of a table that the job creates.
    partition_by: tuple[Text, ...] = ()
    #: Version of a RESTORE after which the job goes on without the rows that it has taken. Only for rows that are
    #: [appended past the JVM](delta.md#appends-past-the-jvm).
    after_restore: NonNegativeInt | None = None

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: object) -> object:
        keys = cls.key_names()
        for name in data if isinstance(data, dict) else ():
            if name not in keys and not name.startswith(_PROPERTY):
                raise unknown(name, [*keys, f"{_PROPERTY}…"], [name])
        return data

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if "`" in self.path:
            raise Rejected("has a backtick, which Delta does not take.", "Use another path.", ["path"])
        return self

    @property
    def properties(self) -> dict[str, str]:
        """Those of a table that the job creates."""
        return self.__pydantic_extra__


class KafkaToDelta(QueryJob):
    """The config file of this job."""

    #: [Options of the source](options.md#source). `startingOffsets` is `earliest` by default; `offsets.group.id` names
    #: a group that is told how far the query is.
    source: Properties
    #: Without it, the source's columns are appended as they are, with headers.
    transform: TableTransform | None = None
    target: TableTarget

    @model_validator(mode="after")
    def _sections(self) -> Self:
        check_settings(self.spark)
        if self.target.merge and self.transform is None:
            hint = "A merge needs the columns topic, partition, offset and deleted, beside those of the table."
            raise missing(["transform"], hint=hint)
        if self.target.after_restore is not None and not self.is_copy:
            message = "is only for rows that are appended past the JVM."
            raise Rejected(message, "Remove it: this query goes on after a RESTORE.", ["target", "afterRestore"])
        return self

    @model_validator(mode="after")
    def _past_spark(self) -> Self:
        if self.transform is None:
            return self
        for key, section in (("parse", self.transform.parse), ("parseKey", self.transform.parse_key)):
            check_topic(only_topic(self.source), section, f"transform.{key}")
        for key, given in (("merge", self.target.merge), ("mergeSchema", self.target.merge_schema)):
            if given and self.transform.is_copy:
                hint = "Remove it, or set 'transform.sql' with 'engine: spark', or 'transform.function'."
                raise Rejected("is for rows that pass through Spark.", hint, ["target", key])
        return self

    @property
    def is_copy(self) -> bool:
        """Whether the rows do not pass through Spark: they are appended, to the columns that there are."""
        return not self.target.merge_schema and (self.transform is None or self.transform.is_copy)

    def source_options(self) -> dict[str, str]:
        """Every option of the source, by its name. Without a transformation, headers are for the table, too."""
        headers = {"includeHeaders": "true"} if self.transform is None else {}
        return headers | source_options_of(self.kafka, self.source)


def plan(config: KafkaToDelta, args: argparse.Namespace) -> Plan:
    """One streaming query from the topics to the table."""
    reads, target = source_of(config.source, config.source_options()), config.target
    topics = topics_of(reads)
    if config.transform is not None:
        config.transform.check_before_spark(reads)

    def start(spark: SparkSession) -> StreamingQuery:
        if config.is_copy:
            return start_copy(spark, config)
        check_session(spark)
        rows = table_rows(read(spark, config), config)
        table = Table(spark, target.path)
        prepare(table, rows, target)
        check_batches(table, config.checkpoint, APPLICATION if target.merge else _APPEND)
        return config.start(writer(counted(rows), config))

    how = f"merged by {', '.join(target.merge)} into" if target.merge else "appended to"
    group = option(config.source, "offsets.group.id")
    return query_plan(
        config,
        f"{selected(reads)} → {how} {target.path}; {f'group {group}' if group else 'no group'}",
        [JobCluster(reads.kafka, topics, topics if is_new(config.checkpoint) else [])],
        start,
        begins(reads, config.source_options()),
        spark=config.spark if config.is_copy else with_delta(config.spark),
        named=lambda error: named(error, target.path),
    )


def start_copy(spark: SparkSession, config: KafkaToDelta) -> StreamingQuery:
    """The query whose tasks write the table's files. It has the identity and the numbers of one that wrote by Spark."""
    target, transform = config.target, config.transform
    sink: dict[str, object] = {"format": "delta", "path": target.path, **target.properties}
    if target.partition_by:
        sink["partitionBy"] = ",".join(target.partition_by)
    return spark_eos.copy(
        spark,
        source=config.source_options(),
        sink=sink | {"afterRestore": target.after_restore},
        checkpoint=config.checkpoint,
        transform=None if transform is None else transform.past_spark(),
        trigger=config.trigger_arguments,
        on_malformed="fail" if transform is None else transform.on_malformed,
        decode=None if transform is None else decodings(spark, config, transform),
    )


def decodings(spark: SparkSession, config: KafkaToDelta, transform: TableTransform) -> dict[str, Decoding]:
    """How values and keys are decoded with schemas of a registry. Raises EosError."""
    return transform.decodings(spark, config.checkpoint, only_topic(config.source))


def read(spark: SparkSession, config: KafkaToDelta) -> DataFrame:
    return spark.readStream.format("eos-kafka").options(**config.source_options()).load()


def table_rows(source: DataFrame, config: KafkaToDelta) -> DataFrame:
    """The rows for the table. Without a transformation, these are the source's own columns."""
    if config.transform is None:
        return source
    found = decodings(source.sparkSession, config, config.transform)
    return result(source, config.transform, Columns(value_in=found.get("value"), key_in=found.get("key")))


def prepare(table: Table, rows: DataFrame, target: TableTarget) -> None:
    """Create the table where there is none; else see whether it fits these rows. Raises TableError, SchemaError."""
    check_names(rows.schema)
    columns = nullable(table_columns(rows, target.merge) if target.merge else rows.schema)
    if not table.exists():
        create(table, columns, target.partition_by, target.properties)
    table.check_remembers()
    fit(table, columns, evolve=target.merge_schema)
    if target.merge:
        check_keys(target.merge, rows.schema, table.schema())


def writer(rows: DataFrame, config: KafkaToDelta) -> DataStreamWriter:
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


main = JobCommand("kafka_to_delta", __doc__, KafkaToDelta, plan).main

if __name__ == "__main__":
    sys.exit(main())
