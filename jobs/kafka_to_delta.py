"""Kafka → Delta table, exactly once: appends the rows of topics to a table past the JVM, or merges them by key.

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
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

if __name__ == "__main__":
    script = ".runner.script" if __package__ else "runner.script"
    importlib.import_module(script, __package__).begin(__file__, __package__)

from pydantic import model_validator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_eos.checkpoint.offset_log import SINK
from spark_eos.checkpoint.settings import HadoopSettings, of_spark
from spark_eos.checkpoint.stores import Store, local_store
from spark_eos.pipelines.tables.delta.creation import check_folder

from .delta.errors import named
from .delta.merge import Keys, Merger, check_keys, table_columns
from .delta.table import (
    MergedTable,
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
from .runner.into_table import IntoTable, IntoTableTransform, TableSection, table_plan
from .runner.job import JobCommand, Plan
from .runner.lines import counted
from .runner.registry import ColumnCodecs
from .runner.transform import result
from .runner.transforms import ParsedTransform
from .runner.values import AtLeastZero, Rejected, Text, missing

_SQL_OF_DUCKDB = (
    "Set 'engine: duckdb', whose SQL also parses JSON, or 'arrow', a function of Arrow batches; or 'target.merge', if "
    "rows are to be merged."
)


class DeltaTransform(IntoTableTransform, ParsedTransform):  # type: ignore[misc]  # onMalformed has fewer values
    """A transform that Spark runs for rows that are merged; appended rows do not pass through Spark."""


class TableTarget(TableSection):
    """The table. Most keys are named like options of Delta's writer. Further keys are properties ``delta.…`` of a table
    that the job creates."""

    prefix: ClassVar[str] = "delta."

    #: The table. It is created where there is none; then `delta.…` keys are its properties.
    path: Text
    #: List of the columns by which rows are [merged](delta.md#merges); without it, they are appended.
    merge: Keys | None = None
    #: List of the partition columns of a table that the job creates.
    partition_by: tuple[Text, ...] = ()
    #: Version of a RESTORE after which the job continues without the rows that it has removed. Only for rows that are
    #: [appended](delta.md#appends).
    after_restore: AtLeastZero | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if "`" in self.path:
            raise Rejected("has a backtick, which Delta does not take.", "Use another path.", ["path"])
        return self

    def extras(self) -> list[str]:
        """See `Section.extras`. Spark merges by delta-spark; delta-rs appends."""
        return [] if self.merge is None else ["delta"]

    def options(self) -> dict[str, object]:
        """Return options of the sink to which rows are appended, by their names."""
        columns = ",".join(self.partition_by) or None
        named = {"format": "delta", "path": self.path, "schema": self.evolution, "partitionBy": columns}
        return named | self.properties | {"afterRestore": self.after_restore}


class KafkaToDelta(IntoTable):
    """The config file of this job."""

    transform: DeltaTransform | None = None
    target: TableTarget

    @model_validator(mode="after")
    def _sections(self) -> Self:
        transform, by_spark = self.transform, self.transform is not None and not self.transform.is_copy
        if self.target.merge is None:
            if transform is not None and by_spark:
                key = "engine" if transform.sql is not None else "function"
                message = "means Spark, which only merges: rows are appended past the JVM."
                raise Rejected(message, _SQL_OF_DUCKDB, ["transform", key])
            return self
        check_settings(self.spark)
        if transform is None:
            hint = "A merge needs the columns topic, partition, offset and deleted, beside those of the table."
            raise missing(["transform"], hint=hint)
        if not by_spark:
            hint = "Remove it, or set 'transform.sql' with 'engine: spark', or 'transform.function'."
            raise Rejected("is for rows that pass through Spark.", hint, ["target", "merge"])
        if self.target.after_restore is not None:
            message = "is only for rows that are appended."
            raise Rejected(message, "Remove it: a merge goes on after a RESTORE.", ["target", "afterRestore"])
        return self


def plan(config: KafkaToDelta, args: argparse.Namespace) -> Plan:
    """Plan one streaming query from the topics to the table."""
    path, sink, settings = config.target.path, config.target.options(), HadoopSettings(of_spark(config.spark))
    store = local_store(path, settings)
    keys = config.target.merge
    if keys is None:
        # How another store is reached, the session knows.
        checks = [config.table_check(sink)] if store else []
        return table_plan(config, f"appended to {path}", lambda spark: config.start_copy(spark, sink), checks=checks)
    return table_plan(
        config,
        f"merged by {', '.join(keys)} into {path}",
        lambda spark: start_merge(spark, config, Merger(path, keys, config.checkpoint)),
        spark=with_delta(config.spark),
        named=lambda error: named(error, path),
        checks=[Check(f"the table {path}", lambda: check_place(path, store, settings))] if store else [],
    )


def check_place(path: str, store: Store, settings: HadoopSettings) -> None:
    """Check that a table is at the path, or may be created there. Raises TableError."""
    if not Path(store.root, "_delta_log").is_dir():
        check_folder(path, settings.on_this_machine())


def start_merge(spark: SparkSession, config: KafkaToDelta, merger: Merger) -> StreamingQuery:
    """Return the query that merges each micro-batch in one commit of the table. Raises EosError."""
    check_session(spark)
    table = MergedTable(spark, merger.path)
    rows = merged_rows(table, config)
    prepare(table, rows, config.target, merger.keys)
    check_batches(table, config.checkpoint)
    writer = counted(rows).writeStream.option("checkpointLocation", config.checkpoint)
    return config.start(writer.foreachBatch(merger.merge))


def merged_rows(table: MergedTable, config: KafkaToDelta) -> DataFrame:
    """Return the topics' rows after `transform`. The source notes the table, for `spark-eos status`."""
    noted = {SINK: json.dumps({"format": "delta", "path": table.address})}
    source = table.spark.readStream.format("eos-kafka").options(**config.source_options(), **noted).load()
    readers = config.decodings(table.spark)
    return result(source, config.transform, ColumnCodecs(value_in=readers.get("value"), key_in=readers.get("key")))


def prepare(table: MergedTable, rows: DataFrame, target: TableTarget, keys: Sequence[str]) -> None:
    """Create the table where there is none; else see whether it fits these rows. Raises TableError, SchemaError."""
    check_names(rows.schema)
    columns = nullable(table_columns(rows, keys))
    if not table.exists():
        create(table, columns, target.partition_by, target.properties)
    table.check_remembers()
    fit(table, columns, evolve=target.evolution == "evolve")
    check_keys(keys, rows.schema, table.schema())


main = JobCommand("kafka_to_delta", __doc__, KafkaToDelta, plan).main

if __name__ == "__main__":
    sys.exit(main())
