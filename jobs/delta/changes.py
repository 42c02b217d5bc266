"""The change data feed of a Delta table, in an order that keeps each key's history."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamReader
from pyspark.sql.types import LongType, StringType

import spark_eos
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import HadoopSettings, of_session
from spark_eos.errors import stop
from spark_eos.pipelines.copy.from_table.changes import KIND_HEADER, VERSION_HEADER
from spark_eos.pipelines.tables.delta.source import CHANGE_KINDS, CHANGE_TYPE, COMMIT_VERSION

from ..runner.columns import raised

VERSION, KIND = COMMIT_VERSION, CHANGE_TYPE
#: Columns that the result of a transformation has beside those of a record: they order it, and become headers.
CHANGE_COLUMNS = ("key", VERSION, KIND)
#: The time of a commit is the time of a file where the table has no in-commit timestamps: a copy has others.
_TIME = "_commit_timestamp"
#: The name of the one sink that the query has.
_SINK = "changes"
_LIMITS = ("maxfilespertrigger", "maxbytespertrigger")
_NO_LIMIT = 2**31 - 1


def of_changes(reader: DataStreamReader, path: str, options: Mapping[str, str]) -> DataFrame:
    """The table's changes as a stream.

    Delta cuts micro-batches by files, also within a commit that deletes rows by one file and inserts rows by another.
    So there is no limit unless it is asked for; `Changes` then sees to it that no such commit was cut.
    """
    if not any(name.lower() in _LIMITS for name in options):
        reader = reader.option("maxFilesPerTrigger", _NO_LIMIT)
    return reader.option("readChangeFeed", "true").load(path).drop(_TIME)


@dataclass(frozen=True)
class Changes:
    """Writes a query's micro-batches of changes, each once. ``settings``: options of the sink."""

    path: str
    checkpoint: str
    tasks: int
    settings: Mapping[str, str]

    def write(self, rows: DataFrame, batch: int) -> None:
        """The function of foreachBatch: a key's changes are in one task, which writes them in their order."""
        self._check_whole(rows.sparkSession, batch)
        ordered = _checked(rows).repartition(self.tasks, "key").sortWithinPartitions(VERSION, _rank())
        writer = spark_eos.batch_writer(_with_headers(ordered), batch, sink=_SINK)
        writer.options(**self.settings).save()

    def _check_whole(self, spark: SparkSession, batch: int) -> None:
        """The micro-batch does not end within a commit that both deletes and inserts rows: a key's old row might be
        deleted after its new one was inserted."""
        checkpoint = Checkpoint(self.checkpoint, HadoopSettings(of_session(spark)))
        end = next((json.loads(line) for line in checkpoint.sources(batch) if "reservoirVersion" in line), None)
        if end is None or end["index"] < 0 or end["isStartingVersion"]:
            return
        version = int(end["reservoirVersion"])
        lines = spark.read.text(f"{self.path}/_delta_log/{version:020d}.json").collect()
        actions = [json.loads(line[0]) for line in lines]
        files = {kind for action in actions for kind, what in action.items() if kind == "cdc" or _changes_data(what)}
        if {"add", "remove"} <= files and "cdc" not in files:
            raise stop("EOS_DELTA_COMMIT_CUT", batch=batch, version=version, path=self.path)


def _changes_data(action: object) -> bool:
    return isinstance(action, dict) and action.get("dataChange") is True


def check_columns(rows: DataFrame) -> None:
    """The columns that order changes are of the types that Delta gives them: as texts, version 10 would come before 9.

    Raises SchemaError.
    """
    for name, kind in ((VERSION, LongType()), (KIND, StringType())):
        if rows.schema[name].dataType != kind:
            raise stop(
                "EOS_DELTA_COLUMNS.changes",
                name=name,
                type=rows.schema[name].dataType.simpleString(),
                version=VERSION,
                kind=KIND,
            )


def _checked(rows: DataFrame) -> DataFrame:
    """The rows, of which each has a version and a kind that order it: reading a row without one ends the query.

    These are columns of the result, as Spark leaves out what nobody reads: a sort of a single row is none, and with it
    go the expressions that it would sort by.
    """
    version = F.coalesce(F.col(VERSION), _not_ordered().cast("bigint"))
    kind = F.when(F.col(KIND).isin(*CHANGE_KINDS), F.col(KIND)).otherwise(_not_ordered())
    return rows.withColumns({VERSION: version, KIND: kind})


def _not_ordered() -> Column:
    return raised(
        "EOS_DELTA_NULL_ORDER.change",
        version=F.col(VERSION),
        kind=F.col(KIND),
        version_column=VERSION,
        kind_column=KIND,
    )


def _rank() -> Column:
    return F.array_position(F.array(*map(F.lit, CHANGE_KINDS)), F.col(KIND))


def _with_headers(rows: DataFrame) -> DataFrame:
    """The rows of the sink: version and kind of each change are headers, after those that the rows have."""
    ours = F.array(
        *(
            F.struct(F.lit(name).alias("key"), F.col(column).cast("string").cast("binary").alias("value"))
            for name, column in ((VERSION_HEADER, VERSION), (KIND_HEADER, KIND))
        )
    )
    theirs = F.coalesce("headers", F.array()) if "headers" in rows.columns else None
    headers = ours if theirs is None else F.concat(theirs, ours)
    return rows.withColumn("headers", headers).drop(VERSION, KIND)
