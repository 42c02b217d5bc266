"""Merges micro-batches of Kafka rows into a Delta table by key: the last row of each key wins, tombstones delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructType

from spark_eos.checkpoint import Checkpoint
from spark_eos.errors import SchemaError, TopicError, UnsupportedError
from spark_eos.storage.settings import HadoopSettings, of_session

from .config import Rejected
from .delta_table import TXN_APP_ID, TXN_VERSION, quoted

#: Under which a query commits its merges. A new checkpoint is a new query, whose batches begin with 0 again.
APPLICATION = "spark-eos merge {}"

#: Columns that say where a row is from, and whether it deletes its key. They are not written to the table.
CONTROL_COLUMNS = {"topic": StringType(), "partition": IntegerType(), "offset": LongType(), "deleted": BooleanType()}
_QUERY = "sql.streaming.queryId"


@dataclass(frozen=True)
class MergeConfig:
    """``keys``: the columns by which a row of the table is found."""

    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        wrong = [key for key in self.keys if key.lower() in CONTROL_COLUMNS]
        if wrong:
            raise Rejected(
                "WRONG_VALUE", f"names '{wrong[0]}', which is not written to the table.", "Use another name.", ["keys"]
            )


def table_columns(rows: DataFrame, merge: MergeConfig) -> StructType:
    """The columns that go to the table. Raises SchemaError where a key or one of `CONTROL_COLUMNS` is missing."""
    fields = {field.name: field for field in rows.schema}
    for name, kind in CONTROL_COLUMNS.items():
        if name not in fields or fields[name].dataType != kind:
            is_ = f"is of type {fields[name].dataType.simpleString()}" if name in fields else "is missing"
            raise SchemaError(
                "EOS_DELTA_MERGE_COLUMNS",
                f"The result of 'transform' is to be merged, but its column '{name}' {is_}.",
                hint="Select topic, partition and offset as they are in 'input', and 'value IS NULL AS deleted' or "
                "whatever says that a row deletes its key. They are not written to the table.",
            )
    missing = [key for key in merge.keys if key not in fields]
    if missing:
        raise SchemaError(
            "EOS_DELTA_MERGE_COLUMNS",
            f"The result of 'transform' has no column '{missing[0]}', which 'target.merge.keys' names.",
            hint=f"It has: {', '.join(fields)}.",
        )
    return StructType([field for name, field in fields.items() if name not in CONTROL_COLUMNS])


def last_rows(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """One row for each key, the last one by its offset, whatever the order of the rows and the number of tasks.

    A key that is null, or whose rows are in two partitions, so that nobody knows which is the last one, fails the
    micro-batch.
    """
    columns = rows.columns
    checked = rows.select(*(_not_null(rows, keys, name) if name in keys else F.col(quoted(name)) for name in columns))
    place = F.struct("topic", "partition")
    found = checked.groupBy(*map(quoted, keys)).agg(
        F.max_by(F.struct(*map(quoted, columns)), F.col("offset")).alias("row"),
        F.min(place).alias("one"),
        F.max(place).alias("other"),
    )
    deleted = F.when(F.col("one") == F.col("other"), F.col("row.deleted")).otherwise(_in_two_partitions())
    return found.select(
        *(F.col(f"row.{quoted(name)}") for name in columns if name not in CONTROL_COLUMNS), deleted.alias("deleted")
    )


def _not_null(rows: DataFrame, keys: Sequence[str], name: str) -> Column:
    null = F.lit(False)
    for key in keys:
        null |= F.col(quoted(key)).isNull()
    failure = F.raise_error(
        F.concat(
            F.lit(f"[EOS_DELTA_NULL_KEY] A row to be merged by {', '.join(keys)} has no key: topic "),
            *_place(F.col("topic"), F.col("partition")),
            F.lit(", offset "),
            F.col("offset"),
            F.lit(". Hint: Leave such rows out in 'transform', or give them a key there."),
        )
    )
    kind = rows.schema[name].dataType
    return F.when(null, failure.cast(kind)).otherwise(F.col(quoted(name))).alias(name)


def _in_two_partitions() -> Column:
    return F.raise_error(
        F.concat(
            F.lit("[EOS_DELTA_KEY_IN_TWO_PLACES] Two rows of one key are in topic "),
            *_place(F.col("one.topic"), F.col("one.partition")),
            F.lit(", and topic "),
            *_place(F.col("other.topic"), F.col("other.partition")),
            F.lit(
                ", so it is not known which is the last. Hint: Merge by what the producers use as key: it decides on "
                "the partition."
            ),
        )
    ).cast(BooleanType())


def _place(topic: Column, partition: Column) -> list[Column]:
    return [topic, F.lit(", partition "), partition]


@dataclass(frozen=True)
class Merger:
    """Merges a query's micro-batches, each once."""

    path: str
    config: MergeConfig
    checkpoint: str

    def merge(self, rows: DataFrame, batch: int) -> None:
        """The function of foreachBatch."""
        spark = rows.sparkSession
        query = spark.sparkContext.getLocalProperty(_QUERY)
        if query is None:
            raise UnsupportedError(
                "EOS_DELTA_WITHOUT_QUERY",
                "Spark does not say which query a micro-batch belongs to.",
                hint="Set spark.pyspark.driver.pin.thread (PYSPARK_PIN_THREAD) back to true.",
            )
        self._check_partitions(spark, batch)
        columns = [name for name in rows.columns if name not in CONTROL_COLUMNS]
        values = {f"t.{quoted(name)}": f"s.{quoted(name)}" for name in columns}
        same = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in self.config.keys)
        source = last_rows(rows, self.config.keys).alias("s")
        with _once(spark, APPLICATION.format(query), batch):
            (
                DeltaTable.forPath(spark, self.path)
                .alias("t")
                .merge(source, same)
                .whenMatchedDelete("s.deleted")
                .whenMatchedUpdate(set=values)  # type: ignore[arg-type]  # texts are columns, too
                .whenNotMatchedInsert("NOT s.deleted", values=values)  # type: ignore[arg-type]
                .execute()
            )

    def _check_partitions(self, spark: SparkSession, batch: int) -> None:
        """Since partitions were added to a topic, its producers send keys to other partitions than before."""
        if batch == 0:
            return
        checkpoint = Checkpoint(self.checkpoint, HadoopSettings(of_session(spark)))
        before, now = checkpoint.kafka_offsets(batch - 1), checkpoint.kafka_offsets(batch)
        for topic in before.keys() & now.keys():
            if len(before[topic]) < len(now[topic]):
                raise TopicError(
                    "EOS_DELTA_TOPIC_GREW",
                    f"Topic {topic} has {len(now[topic])} partitions, no longer {len(before[topic])}: the rows of a "
                    "key may be in two of them, and it is not known which is the last.",
                    hint="Create a topic with as many partitions as needed, let the producers send every key's rows "
                    "there anew, and merge them into a new table with a new checkpoint and 'source.startingOffsets' = "
                    "earliest. In this table, everything before this micro-batch is merged.",
                )


@contextmanager
def _once(spark: SparkSession, application: str, batch: int) -> Iterator[None]:
    """Within, one change of a table is done if its log does not have this batch yet, and notes it there. A second one
    would be skipped."""
    spark.conf.set(TXN_APP_ID, application)
    spark.conf.set(TXN_VERSION, str(batch))
    try:
        yield
    finally:
        spark.conf.unset(TXN_APP_ID)
        spark.conf.unset(TXN_VERSION)
