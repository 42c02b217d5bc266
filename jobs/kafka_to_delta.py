"""Kafka → Delta table, exactly once: appends the rows of topics to a table, or merges them into it by key.

    python -m jobs.kafka_to_delta --conf conf/kafka_to_delta.yaml
    spark-submit jobs/kafka_to_delta.py --conf conf/kafka_to_delta.yaml
    spark-eos run kafka_to_delta --conf job.yaml

docs/delta.md describes the config file.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

if __name__ == "__main__":
    script = ".runner.script" if __package__ else "runner.script"
    importlib.import_module(script, __package__).begin(__file__, __package__)

from pydantic import model_validator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from spark_eos.checkpoint.offset_log import SINK
from spark_eos.checkpoint.settings import HadoopSettings, here
from spark_eos.checkpoint.stores import local_store
from spark_eos.pipelines.tables.delta.creation import check_folder
from spark_eos.pipelines.tables.delta.memory import MERGES

from .delta.batches import Batches
from .delta.errors import named
from .delta.merge import Keys, Merger, check_keys, table_columns
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
from .runner.checks import Check
from .runner.into_table import IntoTable, TableSection, TableTransform, table_plan
from .runner.job import JobCommand, Plan
from .runner.lines import counted
from .runner.past_spark import EngineTransform
from .runner.registry import Columns
from .runner.transform import result
from .runner.values import AtLeastZero, Rejected, Text, missing

#: Under which appends are committed: as by Delta's own sink.
_APPEND = "{}"


class DeltaTransform(TableTransform, EngineTransform):  # type: ignore[misc]  # onMalformed has fewer values
    """By Spark, or past it."""


class TableTarget(TableSection):
    """The table. Most names are those of Delta's writer. Further keys are properties ``delta.…`` of a table that the
    job creates."""

    prefix: ClassVar[str] = "delta."

    #: The table. It is created where there is none; then `delta.…` keys are its properties.
    path: Text
    #: List of the columns by which rows are [merged](delta.md#merges); without it, they are appended.
    merge: Keys | None = None
    #: List of the partition columns of a table that the job creates.
    partition_by: tuple[Text, ...] = ()
    #: Version of a RESTORE after which the job goes on without the rows that it has taken. Only for rows that are
    #: [appended past the JVM](delta.md#appends-past-the-jvm).
    after_restore: AtLeastZero | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if "`" in self.path:
            raise Rejected("has a backtick, which Delta does not take.", "Use another path.", ["path"])
        return self


class KafkaToDelta(IntoTable):
    """The config file of this job."""

    transform: DeltaTransform | None = None
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
        if self.target.merge and self.transform.is_copy:
            hint = "Remove it, or set 'transform.sql' with 'engine: spark', or 'transform.function'."
            raise Rejected("is for rows that pass through Spark.", hint, ["target", "merge"])
        return self

    def extras(self) -> list[str]:
        """See `Job.extras`. Past the JVM, delta-rs writes the table."""
        return [*super().extras(), *([] if self.is_copy else ["delta"])]

    @property
    def is_copy(self) -> bool:
        """Whether the rows do not pass through Spark: they are appended."""
        return self.transform is None or self.transform.is_copy


def plan(config: KafkaToDelta, args: argparse.Namespace) -> Plan:
    """One streaming query from the topics to the table."""
    target = config.target

    def start(spark: SparkSession) -> StreamingQuery:
        if config.is_copy:
            return start_copy(spark, config)
        check_session(spark)
        rows = table_rows(read(spark, config), config)
        table = Table(spark, target.path)
        prepare(table, rows, target)
        check_batches(table, config.checkpoint, MERGES if target.merge else _APPEND)
        return config.start(writer(counted(rows), config))

    how = f"merged by {', '.join(target.merge)} into" if target.merge else "appended to"
    return table_plan(
        config,
        f"{how} {target.path}",
        start,
        spark=config.spark if config.is_copy else with_delta(config.spark),
        named=lambda error: named(error, target.path),
        checks=checks_of(config),
    )


def start_copy(spark: SparkSession, config: KafkaToDelta) -> StreamingQuery:
    """The query whose tasks write the table's files. It has the identity and the numbers of one that wrote by Spark."""
    return config.start_copy(spark, copy_sink(config.target))


def copy_sink(target: TableTarget) -> dict[str, object]:
    """The sink's options of the query whose tasks write the table's files."""
    sink: dict[str, object] = {"format": "delta", "path": target.path, "schema": target.evolution}
    sink |= target.properties
    if target.partition_by:
        sink["partitionBy"] = ",".join(target.partition_by)
    return sink | {"afterRestore": target.after_restore}


def checks_of(config: KafkaToDelta) -> list[Check]:
    """What is looked at before Spark starts, of a table on a local disk: how another store is reached, the session
    knows, and what the columns are, if Spark transforms the rows."""
    store = local_store(config.target.path)
    if store is None:
        return []
    if config.is_copy:
        return [config.table_check(copy_sink(config.target))]

    def look() -> None:
        if not Path(store.root, "_delta_log").is_dir():
            check_folder(config.target.path, here(HadoopSettings()))

    return [Check(f"the table {config.target.path}", look)]


def read(spark: SparkSession, config: KafkaToDelta) -> DataFrame:
    """The rows of the topics. The source notes the table, which `spark-eos status` asks."""
    noted = {SINK: json.dumps({"format": "delta", "path": Table(spark, config.target.path).address})}
    return spark.readStream.format("eos-kafka").options(**config.source_options(), **noted).load()


def table_rows(source: DataFrame, config: KafkaToDelta) -> DataFrame:
    """The rows for the table. Without a transformation, these are the source's own columns."""
    if config.transform is None:
        return source
    found = config.decodings(source.sparkSession)
    return result(source, config.transform, Columns(value_in=found.get("value"), key_in=found.get("key")))


def prepare(table: Table, rows: DataFrame, target: TableTarget) -> None:
    """Create the table where there is none; else see whether it fits these rows. Raises TableError, SchemaError."""
    check_names(rows.schema)
    columns = nullable(table_columns(rows, target.merge) if target.merge else rows.schema)
    if not table.exists():
        create(table, columns, target.partition_by, target.properties)
    table.check_remembers()
    fit(table, columns, evolve=target.evolution == "evolve")
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
