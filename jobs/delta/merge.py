"""Merges micro-batches of Kafka rows into a Delta table by key: the last row of each key wins, tombstones delete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Annotated

from pydantic import AfterValidator, Field
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructType

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.offset_log import is_mark
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError, stop

from ..runner.columns import raised
from ..runner.values import Rejected, Text
from .batches import Batches, BatchNote, logged
from .table import TableCommit, quoted

#: Columns that say where a row is from, and whether it deletes its key. They are not written to the table.
CONTROL_COLUMNS = {"topic": StringType(), "partition": IntegerType(), "offset": LongType(), "deleted": BooleanType()}
#: Of a column's metadata: the type by which it was declared, if that is CHAR or VARCHAR.
_STORED_AS = "__CHAR_VARCHAR_TYPE_STRING"
#: Delta's metrics of a merge.
_METRICS = ("numSourceRows", "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
_PLACE = ("topic", "partition", "offset")
#: Columns beside the user's own.
ROWS, _LAST_TWO, _ONE, _OTHER = "__eos_rows", "__eos_last_two", "__eos_one", "__eos_other"


def _keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    if len({key.lower() for key in keys}) < len(keys):
        raise Rejected("names a column twice.", "Name it once.")
    wrong = [key for key in keys if key.lower() in CONTROL_COLUMNS]
    if wrong:
        hint = f"Use another name than {', '.join(CONTROL_COLUMNS)}."
        raise Rejected("names a column that is not written to the table.", hint)
    return keys


#: The columns by which a row of the table is found.
Keys = Annotated[tuple[Text, ...], Field(min_length=1), AfterValidator(_keys)]


def table_columns(rows: DataFrame, keys: Sequence[str]) -> StructType:
    """Return the columns that go to the table. Raises SchemaError where a key or one of `CONTROL_COLUMNS` is
    missing."""
    fields = {field.name: field for field in rows.schema}
    for name, kind in CONTROL_COLUMNS.items():
        if name not in fields or fields[name].dataType != kind:
            is_ = f"is of type {fields[name].dataType.simpleString()}" if name in fields else "is missing"
            raise stop("EOS_DELTA_COLUMNS.merge_place", name=name, problem=is_)
    missing = [key for key in keys if key not in fields]
    if missing:
        raise stop("EOS_DELTA_COLUMNS.merge_missing", missing=missing[0], fields=", ".join(fields))
    return StructType([field for name, field in fields.items() if name not in CONTROL_COLUMNS])


def check_keys(keys: Sequence[str], rows: StructType, table: StructType) -> None:
    """Check that a merge finds each key in the table: a stored key is equal to the written key, and to no other.

    Raises TableError (EOS_DELTA_COLUMNS).
    """
    there = {field.name.lower(): field for field in table}
    for key in keys:
        column = there[key.lower()]
        stored = str(column.metadata.get(_STORED_AS, "")) or column.dataType.simpleString()
        here = rows[key].dataType.simpleString()
        if stored.startswith("char(") or column.dataType.simpleString() != here:
            raise stop("EOS_DELTA_COLUMNS.merge_type", key=key, stored=stored, given=here)


def last_rows(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return one row for each key, the last one by its offset, which does not depend on the order of the rows or the
    number of tasks; and `ROWS`, how many rows the key had.

    A key that is null, or whose last row is not known, fails the micro-batch: its rows are in two partitions, two of
    them have one offset, or one has none.
    """
    columns = rows.columns
    checked = rows.select(*(_checked(rows, keys, name) for name in columns))
    partition = F.struct("topic", "partition")
    grouped = checked.groupBy(*map(quoted, keys)).agg(
        F.max_by(F.struct(*map(quoted, columns)), F.col("offset"), 2).alias(_LAST_TWO),
        F.min(partition).alias(_ONE),
        F.max(partition).alias(_OTHER),
        F.count(F.lit(1)).alias(ROWS),
    )
    last, other = F.get(_LAST_TWO, F.lit(0)), F.get(_LAST_TWO, F.lit(1))
    deleted = (
        F.when(F.col(_ONE) != F.col(_OTHER), _in_two_partitions())
        .when(last["offset"] == other["offset"], _at_one_offset(last))
        # As in the condition of SQL's DELETE, null means that the row is not deleted.
        .otherwise(F.coalesce(last["deleted"], F.lit(False)))
    )
    kept = (last[name].alias(name) for name in columns if name not in CONTROL_COLUMNS)
    return grouped.select(*kept, deleted.alias("deleted"), ROWS)


def _checked(rows: DataFrame, keys: Sequence[str], name: str) -> Column:
    """Return a column of which no value that tells keys or their order apart is null."""
    kind, column = rows.schema[name].dataType, F.col(quoted(name))
    topic, partition, offset = (F.col(each) for each in _PLACE)
    if name in keys:
        null = reduce(or_, (F.col(quoted(key)).isNull() for key in keys))
        error = raised("EOS_DELTA_NULL_KEY", keys=", ".join(keys), topic=topic, partition=partition, offset=offset)
    elif name == "offset":
        null = reduce(or_, (F.col(each).isNull() for each in _PLACE))
        error = raised("EOS_DELTA_NULL_ORDER.place", topic=topic, partition=partition, offset=offset)
    else:
        return column
    return F.when(null, error.cast(kind)).otherwise(column).alias(name)


def _in_two_partitions() -> Column:
    one, other = F.col(_ONE), F.col(_OTHER)
    error = raised(
        "EOS_DELTA_KEY_IN_TWO_PLACES",
        topic=one["topic"],
        partition=one["partition"],
        other_topic=other["topic"],
        other_partition=other["partition"],
    )
    return error.cast(BooleanType())


def _at_one_offset(row: Column) -> Column:
    position = {name: row[name] for name in ("topic", "partition", "offset")}
    return raised("EOS_DELTA_KEY_TWICE", **position).cast(BooleanType())


@dataclass(frozen=True)
class Merger:
    """Merges a query's micro-batches, each once, and proves that nothing of them was left out."""

    path: str
    keys: Sequence[str]
    checkpoint: str

    def merge(self, rows: DataFrame, batch: int) -> None:
        """Merge a micro-batch; the function of foreachBatch."""
        spark = rows.sparkSession
        self._check_partitions(spark, batch)
        source = last_rows(rows, self.keys)

        proof = Proof(self.path, self.keys, source)
        try:
            Batches(self.path, self.checkpoint).once(
                spark, batch, lambda: self._merge(source), lambda: counted(source.persist()), proof.check
            )
        finally:
            source.unpersist()

    def _merge(self, source: DataFrame) -> None:
        from delta.tables import DeltaTable  # which appends do not need

        columns = [name for name in source.columns if name not in (*CONTROL_COLUMNS, ROWS)]
        values: dict[str, str | Column] = {f"t.{quoted(name)}": f"s.{quoted(name)}" for name in columns}
        (
            DeltaTable.forPath(source.sparkSession, self.path)
            .alias("t")
            .merge(source.alias("s"), _same(self.keys))
            .whenMatchedDelete("s.deleted")
            .whenMatchedUpdate(set=values)
            .whenNotMatchedInsert("NOT s.deleted", values=values)
            .execute()
        )

    def _check_partitions(self, spark: SparkSession, batch: int) -> None:
        """Check for partitions that were added to a topic: its producers send keys to other partitions since."""
        if batch == 0:
            return
        checkpoint = Checkpoint(self.checkpoint, HadoopSettings.from_session(spark))
        for before, now in zip(logged(checkpoint, batch - 1), logged(checkpoint, batch), strict=True):
            for topic in before.keys() & now.keys():
                if not is_mark(topic) and len(before[topic]) < len(now[topic]):
                    raise _grew(topic, len(before[topic]), len(now[topic]))


def _grew(topic: str, before: int, now: int) -> EosError:
    return stop("EOS_DELTA_TOPIC_GREW", topic=topic, partitions=now, before=before)


def counted(source: DataFrame) -> dict[str, int]:
    """Count rows, keys and deleted keys of a micro-batch whose `last_rows` these are."""
    counts = source.agg(
        F.coalesce(F.sum(ROWS), F.lit(0)).alias("rows"),
        F.count(F.lit(1)).alias("keys"),
        F.count_if("deleted").alias("deletes"),
    ).collect()[0]
    return {name: int(count) for name, count in counts.asDict().items()}


@dataclass(frozen=True)
class Proof:
    """Proof of a merge: every row is inserted, updates or deletes a row of its key, deletes a key
    that is not there, or comes before a later row of its key. ``source``: the `last_rows` of the micro-batch."""

    path: str
    keys: Sequence[str]
    source: DataFrame

    def check(self, commit: TableCommit, note: BatchNote, again: bool) -> None:
        """Check the counts of a merge. Raises TableError (EOS_DELTA_MERGE_COUNTS). ``again``: the table had the
        micro-batch before; then keys that it has in more than one row are no error.

        Delta counts more than there are where Spark runs tasks again, and where the table has two rows of one key. So
        then the keys are looked for in the table; fewer than there are is an error at once.
        """
        keys, deletes = note.counts["keys"], note.counts["deletes"]
        metrics = [commit.metric(name) for name in _METRICS]
        numbers = [number for number in metrics if number is not None]
        fewer, said = False, ""
        if len(numbers) == len(metrics):
            seen, inserted, updated, deleted = numbers
            written = inserted + updated
            if (seen, written) == (keys, keys - deletes) and deleted <= deletes:
                return
            fewer = seen < keys or written < keys - deletes
            said = f"Delta has merged {seen:,} keys, inserted or updated {written:,} rows and deleted {deleted:,}"
        if not fewer:
            missing, more, left = self._looked_for(commit.version)
            if not (missing or left or (more and not again)):
                return
            said = (
                f"{missing:,} of its keys are not in the table, {more:,} are there in more than one row, and {left:,} "
                "that it deletes are there"
            )
        raise stop(
            "EOS_DELTA_MERGE_COUNTS",
            batch=note.batch,
            path=self.path,
            version=commit.version,
            rows=note.counts["rows"],
            keys=keys,
            deletes=deletes,
            cause=said,
            note=note,
        )

    def _looked_for(self, version: int) -> tuple[int, int, int]:
        """Count keys that the table lacks, has more than once, and has although they were deleted."""
        table = self.source.sparkSession.read.format("delta").option("versionAsOf", version).load(self.path)
        there = table.groupBy(*map(quoted, self.keys)).agg(F.count(F.lit(1)).alias(ROWS)).alias("t")
        number = F.coalesce(F.col(f"t.{ROWS}"), F.lit(0))
        differences = (
            self.source.alias("s")
            .join(there, F.expr(_same(self.keys)), "left")
            .agg(
                F.count_if(~F.col("s.deleted") & (number == 0)),
                F.count_if(~F.col("s.deleted") & (number > 1)),
                F.count_if(F.col("s.deleted") & (number > 0)),
            )
        )
        missing, more, left = differences.collect()[0]
        return int(missing), int(more), int(left)


def _same(keys: Sequence[str]) -> str:
    return " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)
