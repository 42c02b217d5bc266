"""One attempt of one task from a table to topics: read its files, transform their rows, and write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import stop
from spark_eos.pipelines.copy.from_table.changes import Changes, in_order, input_of, rows_of
from spark_eos.pipelines.copy.from_table.plan import FromTablePlan, TableFile, topic_of
from spark_eos.pipelines.copy.plan import Transform
from spark_eos.pipelines.copy.ranges import CopiedFrom, joined
from spark_eos.pipelines.copy.task import RangeRows, TaskRun
from spark_eos.pipelines.copy.transforming import as_sink_rows, called, columns_of, row_numbers
from spark_eos.pipelines.tables.delta.log import TableLog
from spark_eos.pipelines.tables.delta.source import CHANGE_TYPE, SourceTable
from spark_eos.pipelines.tables.delta.versions import CHANGED
from spark_eos.pipelines.tables.reading import FileReader, RowSlice
from spark_eos.spi import RowBatch, WriteStats, open_store


class TableRows(RangeRows):
    """Rows of a table's files."""

    plan: FromTablePlan

    def copied_from(self, given: Sequence[TableFile]) -> CopiedFrom:
        ranges = joined(file.range(self.plan.table) for file in given)
        topics = tuple(sorted({(r.topic, "") for r in ranges}))
        return CopiedFrom("", topics, self.plan.transform.name, ranges)

    def stats(self, run: TaskRun) -> Iterator[WriteStats]:
        """Write the rows that the transform makes of each piece of each file, and yield their stats."""
        plan, table, transform = self.plan, self.plan.table, self.plan.transform
        files = files_of(run.ranges, table, {file.range(table): file for file in run.given})
        for read in read_files(plan, files):
            rows = _transformed(transform, read, table)
            if rows.num_rows:
                numbers = read.row_numbers(table, rows.num_rows)
                batch = RowBatch(rows, transform.columns, plan.sink.topic, numbers)
                yield replace(run.attempt.writer.write(batch), bytes=batch.bytes)
            yield WriteStats(0, 0, read=read.rows.num_rows)


def files_of(
    ranges: Iterable[OffsetRange], table: SourceTable, given: Mapping[OffsetRange, TableFile]
) -> Iterator[TableFile]:
    """Yield the files of the ranges, in order. The files of a repair that Spark did not give to this task are looked up
    in the table's log. Raises TableError, DataLossError."""
    log = TableLog(table)
    for range_ in ranges:
        for number in range(range_.start, range_.end):
            one = range_.cut(number, number + 1)
            yield given[one] if one in given else _looked_up(log, one)


def _looked_up(log: TableLog, one: OffsetRange) -> TableFile:
    path, at_first = log.table.location.path, one.topic == topic_of(log.table, at_first=True)
    group = log.first(one.partition) if at_first else log.files(one.partition)
    if group is None or one.start >= group.files.num_rows:
        cause = f"file {one.start} of version {one.partition} of {path}, which was lost in a transaction, is not there"
        raise stop("EOS_DELTA_DATA_LOSS.log", cause=cause)
    (row,) = group.files.slice(one.start, 1).to_pylist()
    return TableFile(one.partition, at_first, one.start, **row)


@dataclass(frozen=True)
class Read:
    """Rows of a piece of a file, as a transform gets them; ``first``: the number of the piece's first row in the file.
    ``changes``: version and kind of the changes, where changes are read."""

    file: TableFile
    rows: pa.RecordBatch
    first: int
    changes: Changes | None = None

    def number(self, row: int) -> int:
        """Return the number in the file of a row of the piece."""
        return self.first + row if self.changes is None else int(self.changes.numbers[row])

    def row_numbers(self, table: SourceTable, count: int) -> np.ndarray:
        """Return a number for each row, in order, that a transform has made."""
        topic = f"{topic_of(table, at_first=self.file.at_first)} {self.file.number}"
        if self.changes is not None:
            topic = f"{topic} {self.changes.kind}"
        return row_numbers(topic, self.file.version, self.first, count)


def read_files(plan: FromTablePlan, files: Iterable[TableFile]) -> Iterator[Read]:
    """Yield all rows of the files, as a transform gets them: appended ones by their files, changes in their order.
    Raises TableError, DataLossError, and SchemaError for a file that does not fit the table."""
    table = plan.table
    store = open_store(table.location.path, plan.storage)
    reader = FileReader(store, table.location.path, table.schema, table.partition_by)
    of_changes = replace(reader, schema=table.schema.append(pa.field(CHANGE_TYPE, pa.string())))

    def pieces(file: TableFile) -> Iterator[RowSlice]:
        return (of_changes if file.kind == CHANGED else reader).pieces(file.path, file.size, file.partition)

    if table.changes:
        for changes in in_order(files, pieces):
            yield Read(changes.file, input_of(changes), changes.first, changes)
    else:
        for file in files:
            for piece in pieces(file):
                yield Read(file, piece.rows, piece.first)


def _transformed(transform: Transform, read: Read, table: SourceTable) -> pa.RecordBatch:
    """Return the sink's columns. Raises SchemaError, RowError, TableError, and errors of the function."""
    path = table.location.path

    def where() -> str:
        return f"rows of {read.file.path} from number {read.number(0)} on, table {path}"

    result, failed = called(transform.function, read.rows, where, tolerant=True)
    if failed:
        row, error = min(failed.items())
        raise stop(
            "EOS_TRANSFORM_SQL_ROW",
            or_drop="",
            file=read.file.path,
            table=path,
            row=read.number(row),
            error=error,
            where=f"row {read.number(row)} of the file {read.file.path}, table {path}",
        )
    rows = as_sink_rows(result) if read.changes is None else rows_of(result, read.changes)
    if columns_of(rows.schema.names, transform.columns.topic) != transform.columns:
        raise stop("EOS_TRANSFORM_RESULT.empty_batch", columns=", ".join(result.schema.names))
    return rows
