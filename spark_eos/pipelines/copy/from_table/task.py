"""One attempt of one task from a table to topics: read its files, transform their rows, and write into a transaction.

In a decision, a file is a range of one offset: the table's id as the topic, the version as the partition, and the
file's number as the offset. Files that the table had when the query began have a topic of their own, and so have those
of changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import stop
from spark_eos.pipelines.copy.from_table.changes import Changes, in_order, input_of, rows_of
from spark_eos.pipelines.copy.from_table.files import TableFile, topic_of
from spark_eos.pipelines.copy.from_table.plan import FromTablePlan
from spark_eos.pipelines.copy.plan import Transform
from spark_eos.pipelines.copy.ranges import CopiedFrom, merged, reported
from spark_eos.pipelines.copy.task import TaskRequest, assigned
from spark_eos.pipelines.copy.transforming import called, columns_of, conformed, places_from
from spark_eos.pipelines.tables.delta.log import TableLog
from spark_eos.pipelines.tables.delta.source import CHANGE_TYPE, SourceTable
from spark_eos.pipelines.tables.delta.versions import CHANGED
from spark_eos.pipelines.tables.reading import FileReader, Piece
from spark_eos.protocol.head import Digest
from spark_eos.sink.counting import size_of
from spark_eos.spi import Part, RowBatch, RowWriter, Task, TaskReport, open_store


def requested_by(plan: FromTablePlan, batches: Iterable[pa.RecordBatch]) -> tuple[TaskRequest, list[TableFile]]:
    """What Spark gave to a task, whose rows are files (`spark_eos.pipelines.copy.from_table.source.FILE_SCHEMA`)."""
    rows: list[dict[str, Any]] = [row for batch in batches for row in batch.to_pylist()]
    tasks = max((row["tasks"] for row in rows), default=1)
    files = [TableFile(**{name: value for name, value in row.items() if name != "tasks"}) for row in rows]
    ranges = merged(file.range(plan.table) for file in files)
    topics = tuple(sorted({(r.topic, "") for r in ranges}))
    return TaskRequest(CopiedFrom("", topics, plan.transform.name, ranges), tasks), files


def run_task(plan: FromTablePlan, task: Task, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    """Write the rows of the task's files, or nothing if that is decided and not lost; the report for the driver."""
    requested, files = requested_by(plan, batches)
    found = assigned(task, requested)
    if isinstance(found, TaskReport):
        return found
    mine = files_of(found.ranges, plan.table, {file.range(plan.table): file for file in files})
    parts = _parts(plan, found.writer, found.digest_by, mine)
    return reported(found.attempt.write(parts), requested.copied_from, found.ranges)


def files_of(
    ranges: Iterable[OffsetRange], table: SourceTable, given: Mapping[OffsetRange, TableFile]
) -> Iterator[TableFile]:
    """The files of the ranges, in order. A repair's may be others than those that Spark gave to this task: they are
    looked up in the table's log. Raises TableError, DataLossError."""
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
    ``changes``: what they have changed, where changes are read."""

    file: TableFile
    rows: pa.RecordBatch
    first: int
    changes: Changes | None = None

    def number(self, place: int) -> int:
        """Of a row, its number in the file."""
        return self.first + place if self.changes is None else int(self.changes.numbers[place])

    def places(self, table: SourceTable, count: int) -> np.ndarray:
        """A number for each row, in order, that a transform has made."""
        topic = f"{topic_of(table, at_first=self.file.at_first)} {self.file.number}"
        if self.changes is not None:
            topic = f"{topic} {self.changes.kind}"
        return places_from(topic, self.file.version, self.first, count)


def _parts(plan: FromTablePlan, writer: RowWriter, digest_by: Digest, files: Iterable[TableFile]) -> Iterator[Part]:
    """The rows that the transform makes of each piece of each file."""
    table, transform = plan.table, plan.transform
    for read in read_files(plan, files):
        rows = _transformed(transform, read, table)
        if rows.num_rows:
            places = read.places(table, rows.num_rows)
            part = writer.write(RowBatch(rows, transform.columns, plan.sink.topic, places), digest_by)
            yield replace(part, bytes=size_of(rows))
        yield Part(0, 0, read=read.rows.num_rows)


def read_files(plan: FromTablePlan, files: Iterable[TableFile]) -> Iterator[Read]:
    """All rows of the files, as a transform gets them: appended ones by their files, changes in their order. Raises
    TableError, DataLossError, and SchemaError for a file that does not fit the table."""
    table = plan.table
    store = open_store(table.location.path, plan.storage)
    reader = FileReader(store, table.location.path, table.schema, table.partition_by)
    of_changes = replace(reader, schema=table.schema.append(pa.field(CHANGE_TYPE, pa.string())))

    def pieces(file: TableFile) -> Iterator[Piece]:
        return (of_changes if file.kind == CHANGED else reader).pieces(file.path, file.size, file.partition)

    if table.changes:
        for changes in in_order(files, pieces):
            yield Read(changes.file, input_of(changes), changes.first, changes)
    else:
        for file in files:
            for piece in pieces(file):
                yield Read(file, piece.rows, piece.first)


def _transformed(transform: Transform, read: Read, table: SourceTable) -> pa.RecordBatch:
    """The sink's columns. Raises SchemaError, RowError, TableError, and what the function raises."""
    path = table.location.path

    def where() -> str:
        return f"rows of {read.file.path} from number {read.number(0)} on, table {path}"

    result, failed = called(transform.function, read.rows, where, tolerant=True)
    if failed:
        place, error = min(failed.items())
        raise stop(
            "EOS_TRANSFORM_SQL_ROW",
            or_drop="",
            file=read.file.path,
            table=path,
            row=read.number(place),
            error=error,
            where=f"row {read.number(place)} of the file {read.file.path}, table {path}",
        )
    rows = conformed(result) if read.changes is None else rows_of(result, read.changes)
    if columns_of(rows.schema.names, transform.columns.topic) != transform.columns:
        raise stop("EOS_TRANSFORM_RESULT.empty_batch", columns=", ".join(result.schema.names))
    return rows
