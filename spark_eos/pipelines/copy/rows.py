"""Ranges as Spark's rows: Spark plans, schedules and hands them out, and only tasks of the same query read them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_eos.spi import quiet_here

#: A row: one range, and how many tasks the micro-batch has, pickled.
RANGE_SCHEMA = StructType([StructField("range", BinaryType())])
_ARROW_SCHEMA = pa.schema([("range", pa.binary())])


@dataclass(frozen=True)
class RangesOfTask(InputPartition):
    """Ranges that one task reads, in this order of topics (`OffsetRange`), or files of a table (`TableFile`).
    ``tasks``: how many tasks the micro-batch has."""

    ranges: tuple[Any, ...]
    tasks: int


class RangeReader(DataSourceStreamReader):
    """A reader that hands ranges to the tasks, a row each. Only this part of it travels to them."""

    def __reduce__(self) -> tuple[Any, ...]:
        return RangeReader, ()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's ranges. The sink reads their records."""
        quiet_here()
        assert isinstance(partition, RangesOfTask)
        rows = [pickle.dumps((range_, partition.tasks)) for range_ in partition.ranges]
        yield pa.RecordBatch.from_arrays([pa.array(rows, pa.binary())], schema=_ARROW_SCHEMA)


def given_to_task(batches: Iterable[pa.RecordBatch]) -> RangesOfTask:
    """Parse the result of `RangeReader.read`."""
    rows = [pickle.loads(row) for batch in batches for row in batch.column(0).to_pylist()]
    return RangesOfTask(tuple(range_ for range_, _ in rows), max((tasks for _, tasks in rows), default=1))
