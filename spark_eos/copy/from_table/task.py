"""One attempt of one task from a table to topics: read its files, transform their rows, and write into a transaction.

In a decision, a file is a range of one offset: the table's id as the topic, the version as the partition, and the
file's number as the offset. Files that the table had when the query began have a topic of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from spark_eos.checkpoint.stores import open_store
from spark_eos.copy.from_table.plan import FromTablePlan
from spark_eos.copy.plan import Transform
from spark_eos.copy.task import TaskRequest, assigned
from spark_eos.copy.transforming import called, columns_of, conformed, places_from
from spark_eos.errors import stop
from spark_eos.protocol.head import CopiedFrom, Digest, merged
from spark_eos.protocol.task import TaskReport
from spark_eos.sink.attempt import Part, RowWriter
from spark_eos.sink.counting import size_of
from spark_eos.sink.job import Identity, SinkJob
from spark_eos.sink.rows import RowBatch
from spark_eos.tables.delta.appends import AppendLog, SourceTable
from spark_eos.tables.reading import FileReader, Piece
from spark_eos.topic_partition import OffsetRange


@dataclass(frozen=True)
class TableFile:
    """A file and where it stands: its ``number`` among the files of its ``version``; ``at_first``: see
    `spark_eos.copy.from_table.planning.FilesOfVersion`. The others: see `spark_eos.tables.delta.appends.FILES`."""

    version: int
    at_first: bool
    number: int
    path: str = field(compare=False)
    size: int = field(compare=False)
    partition: str = field(compare=False)

    def range(self, table: str) -> OffsetRange:
        """The file as a range of a decision. ``table``: its id."""
        return OffsetRange(topic_of(table, at_first=self.at_first), self.version, self.number, self.number + 1)


def topic_of(table: str, *, at_first: bool) -> str:
    """What stands for a table's files in a decision."""
    return f"{table} as it was" if at_first else table


def requested_by(plan: FromTablePlan, batches: Iterable[pa.RecordBatch]) -> tuple[TaskRequest, list[TableFile]]:
    """What Spark gave to a task, whose rows are files (`spark_eos.copy.from_table.source.FILE_SCHEMA`)."""
    rows: list[dict[str, Any]] = [row for batch in batches for row in batch.to_pylist()]
    tasks = max((row["tasks"] for row in rows), default=1)
    files = [TableFile(**{name: value for name, value in row.items() if name != "tasks"}) for row in rows]
    ranges = merged(file.range(plan.table.id) for file in files)
    topics = tuple(sorted({(r.topic, "") for r in ranges}))
    return TaskRequest(CopiedFrom("", topics, plan.transform.name, ranges), tasks), files


def run_task(plan: FromTablePlan, job: SinkJob, identity: Identity, batches: Iterator[pa.RecordBatch]) -> TaskReport:
    """Write the rows of the task's files, or nothing if that is decided and not lost; the report for the driver."""
    requested, files = requested_by(plan, batches)
    found = assigned(job, identity, requested)
    if isinstance(found, TaskReport):
        return found
    mine = files_of(found.ranges, plan.table, {file.range(plan.table.id): file for file in files})
    parts = _parts(plan, found.writer, found.digest_by, mine)
    return replace(found.attempt.write(parts), copied_from=requested.copied_from)


def files_of(
    ranges: Iterable[OffsetRange], table: SourceTable, given: Mapping[OffsetRange, TableFile]
) -> Iterator[TableFile]:
    """The files of the ranges, in order. A repair's may be others than those that Spark gave to this task: they are
    looked up in the table's log. Raises TableError, DataLossError."""
    log = AppendLog(table)
    for range_ in ranges:
        for number in range(range_.start, range_.end):
            one = range_.cut(number, number + 1)
            yield given[one] if one in given else _looked_up(log, one)


def _looked_up(log: AppendLog, one: OffsetRange) -> TableFile:
    path, at_first = log.table.location.path, one.topic != log.table.id
    group = log.first(one.partition) if at_first else log.appended(one.partition)
    if group is None or one.start >= group.files.num_rows:
        cause = f"file {one.start} of version {one.partition} of {path}, which was lost in a transaction, is not there"
        raise stop("EOS_DELTA_DATA_LOSS.log", cause=cause)
    (row,) = group.files.slice(one.start, 1).to_pylist()
    return TableFile(one.partition, at_first, one.start, **row)


def _parts(plan: FromTablePlan, writer: RowWriter, digest_by: Digest, files: Iterable[TableFile]) -> Iterator[Part]:
    """The rows that the transform makes of each piece of each file."""
    table, transform = plan.table, plan.transform
    store = open_store(table.location.path, plan.storage)
    reader = FileReader(store, table.location.path, table.schema, table.partition_by)
    for file in files:
        range_ = file.range(table.id)
        for piece in reader.pieces(file.path, file.size, file.partition):
            rows = _transformed(transform, piece, file, table)
            if rows.num_rows:
                places = places_from(f"{range_.topic} {file.number}", file.version, piece.first, rows.num_rows)
                part = writer.write(RowBatch(rows, transform.columns, plan.sink.topic, places), digest_by)
                yield replace(part, bytes=size_of(rows))


def _transformed(transform: Transform, piece: Piece, file: TableFile, table: SourceTable) -> pa.RecordBatch:
    """The sink's columns. Raises SchemaError, RowError, and what the function raises."""
    path = table.location.path

    def where() -> str:
        return f"rows of {file.path} from number {piece.first} on, table {path}"

    result, failed = called(transform.function, piece.rows, where, tolerant=True)
    if failed:
        place, error = min(failed.items())
        raise stop("EOS_TRANSFORM_SQL_ROW.file", file=file.path, table=path, row=piece.first + place, error=error)
    rows = conformed(result)
    if columns_of(rows.schema.names, transform.columns.topic) != transform.columns:
        raise stop("EOS_TRANSFORM_RESULT.empty_batch", columns=", ".join(rows.schema.names))
    return rows
