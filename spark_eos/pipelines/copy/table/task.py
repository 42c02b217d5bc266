"""One attempt of one task of a query to a table: fetch its ranges, and write their records to files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from spark_eos.base import failpoints
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.pipelines.copy.table.plan import TablePlan
from spark_eos.pipelines.copy.table.rows import rows_of, unfit_reason
from spark_eos.pipelines.copy.transforming import rejection
from spark_eos.pipelines.tables.files import DataFile, FileAttempt, FileLayout, FileWriter
from spark_eos.pipelines.tables.partitions import NoPartition
from spark_eos.pipelines.tables.target import stored
from spark_eos.pipelines.tables.values import conformed
from spark_eos.spark.worker_gc import spare_collections
from spark_eos.spi import Identity, RangesOfTask, ReadableRanges


@dataclass(frozen=True)
class TableMessage(WriterCommitMessage):
    """A task's report on its way to the driver through Spark.

    ``ranges``: all that it was given, including ranges that could not be read. ``read``: records that were read;
    ``dropped``: records that the transform rejected, and that are left out. ``skipped``: the table had the micro-batch
    when the query started, so nothing was read. ``took_s``: seconds; ``done``: when the task had ended, in seconds
    since 1970.
    """

    query: str
    run: str
    ranges: tuple[OffsetRange, ...]
    files: tuple[DataFile, ...]
    rows: int
    read: int
    dropped: int
    skipped: bool
    took_s: float
    done: float


def write_files(plan: TablePlan, identity: Identity, batches: Iterator[pa.RecordBatch]) -> TableMessage:
    """Write the records of the task's ranges, and return the report for the driver. Raises EosError (EOS_TABLE_STORE
    for errors of the store); then none of the files counts."""
    began = time.perf_counter()
    ranges = RangesOfTask.parse(batches).ranges
    skipped = plan.last is not None and identity.batch <= plan.last
    files, read, dropped = ((), 0, 0) if skipped or not ranges else _written(plan, identity, ranges)
    rows = sum(file.rows for file in files)
    failpoints.reach("table.written")
    spare_collections()
    took_s = time.perf_counter() - began
    return TableMessage(identity.query, identity.run, ranges, files, rows, read, dropped, skipped, took_s, time.time())


@contextmanager
def _rejecting(records: pa.RecordBatch, layout: FileLayout) -> Iterator[None]:
    """Raise RowError (EOS_RECORD_REJECTED) for the first of these records, which the block writes unchanged, with a
    timestamp that the table cannot hold, or a value that cannot be a partition value."""
    times = records.select([field.name for field in records.schema if pa.types.is_timestamp(field.type)])
    if bad := conformed(times, times.schema).bad:
        raise rejection(records, {place: unfit_reason(reason) for place, reason in bad.items()})
    try:
        yield
    except NoPartition:
        rows = records.select(layout.schema.names)
        bad = conformed(rows, layout.schema, layout.partition_by, layout.keys).bad
        raise rejection(records, {place: unfit_reason(reason) for place, reason in bad.items()}) from None


def _written(
    plan: TablePlan, identity: Identity, ranges: Sequence[OffsetRange]
) -> tuple[tuple[DataFile, ...], int, int]:
    """Return the files, how many records were read, and how many of them are left out."""
    readable = ReadableRanges.in_task(plan.source, plan.cluster, {r.topic: r.topic_id for r in ranges})
    attempt = FileAttempt(identity.query, identity.batch, identity.partition, identity.attempt)
    read = dropped = 0

    def counted(records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nonlocal read
        for batch in records:
            read += batch.num_rows
            yield batch

    table = plan.table
    with stored(table):
        store = table.store()
    # For all ranges as many as each may have, so that it does not matter which of them share a task.
    layout = replace(table.layout, most_partitions=len(ranges) * table.layout.most_partitions)
    with FileWriter(store, layout, attempt) as writer:
        for range_ in readable.parts(ranges):
            records = counted(readable.records(range_))
            if plan.transform is None:
                for batch in records:
                    with stored(table), _rejecting(batch, table.layout):
                        writer.write(batch.select(table.layout.schema.names))
                continue
            for done in rows_of(plan.transform, records):
                with stored(table):
                    writer.write(done.rows)
                dropped += len(done.rejected)
        with stored(table):
            return writer.close(), read, dropped
