"""Files to a topic past the JVM: Spark hands the tasks numbers of splits, and they read the files themselves.

A task reads a file as the data source of rows does (`spark_eos.pipelines.files.source.read_file`), and a transform gets
the columns that Spark's would get (`spark_eos.pipelines.files.transforming`). So both ways have the same rows in the
same tasks, with the same digests, and either of them can repair the other one's decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructType

from spark_eos.pipelines.arrow_types import arrow_schema
from spark_eos.pipelines.copy.plan import RowTransform, Transform
from spark_eos.pipelines.copy.transforming import TYPES, checked
from spark_eos.pipelines.copy.written import LastWritten
from spark_eos.pipelines.files.folder import File, malformed
from spark_eos.pipelines.files.notes import Notes, Splits
from spark_eos.pipelines.files.parquet import parquet_schema, spark_schema
from spark_eos.pipelines.files.source import FILE, LINE, Form, cast, read_file
from spark_eos.pipelines.files.transforming import made, pieces
from spark_eos.spi import Columns, CountingIterator, HadoopSettings, check_columns, write_by_job

if TYPE_CHECKING:
    from spark_eos.spi import Task, TaskReport, WriteOptions

#: Columns of lines as rows.
_LINES = StructType().add("value", StringType())


def _with_place(struct: StructType) -> StructType:
    return StructType([*struct.fields]).add(FILE, StringType()).add(LINE, LongType())


#: The columns of lines as a transform gets them.
LINES = arrow_schema(_with_place(_LINES))


@dataclass
class TransformCounts:
    """Rows of a task: how many it has read, and how many of them its transform has rejected."""

    read: int = 0
    rejected: int = 0


@dataclass(frozen=True)
class FileRows:
    """The rows of a micro-batch's files, as they are or as a transform makes them. See `spark_eos.sink.job.RowSource`.

    ``splits``: ranges of files for each task; ``columns``: the sink's, of the written rows; ``storage``: Hadoop's
    settings of file systems; ``written``: commits note the counts that they wrote here; ``kind``: the notes that are
    published with them. ``transform``: called with the rows, whose columns are ``given``; without it, the columns of
    the files are the sink's.
    """

    form: Form
    splits: Splits
    columns: Columns
    storage: HadoopSettings
    written: LastWritten
    kind: Notes
    transform: Transform | None = field(default=None, kw_only=True)
    given: pa.Schema | None = field(default=None, kw_only=True)

    def write(self, task: Task, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write a task's rows, from the splits whose numbers are in ``batches``. Raises FileError for a file that is
        not as planned, and the errors of `spark_eos.sink.task.run_task`."""
        from spark_eos.spi import run_task

        counts = TransformCounts()
        rows = CountingIterator(self._rows(batches, counts))
        report = run_task(task, rows)
        return replace(report, bytes=rows.bytes, read=counts.read, dropped=counts.rejected)

    def committed(self, batch: int, rows: int, size: int, dropped: int, read: int) -> None:
        """Note the micro-batch for the job."""
        self.written.note(batch, rows, size, dropped, read=read)

    def _rows(self, batches: Iterable[pa.RecordBatch], counts: TransformCounts) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            for file in self.splits[number]:
                yield from self._of_file(file, counts)

    def _of_file(self, file: File, counts: TransformCounts) -> Iterator[pa.RecordBatch]:
        read = read_file(file, self.form, self.storage)
        if self.transform is None:
            for rows in read:
                counts.read += rows.num_rows
                yield _of_the_sink(rows, file)
            return
        for piece in pieces((cast(rows, self.given, file) for rows in read), self.form):
            done = made(self.transform, file, piece)
            counts.read += piece.num_rows
            counts.rejected += len(done.rejected)
            yield done.rows


def _of_the_sink(rows: pa.RecordBatch, file: File) -> pa.RecordBatch:
    """Convert rows of a file to the sink's types, without the columns for file and line. Raises FileError for a value
    that a type cannot hold."""
    names = [name for name in rows.schema.names if name not in (FILE, LINE)]
    try:
        return pa.record_batch({name: rows.column(name).cast(TYPES[name]) for name in names})
    except pa.ArrowException as error:
        raise malformed(file, f"its columns do not fit the topic: {error}") from None


def _struct_in(file: File, form: Form, storage: HadoopSettings) -> StructType:
    """Return the columns of a file, with types that Spark has. Raises FileError."""
    return spark_schema(file, parquet_schema(file, storage)) if form.parquet else _LINES


def given_in(file: File, form: Form, storage: HadoopSettings) -> StructType:
    """Return the columns of a file as a transform gets them. Raises FileError."""
    return _with_place(_struct_in(file, form, storage))


def columns_in(file: File, form: Form, storage: HadoopSettings, topic: str) -> Columns:
    """Return the columns of a file for a topic, which are the same in all files of its micro-batch. Raises FileError,
    and SchemaError for columns that no topic has, or with other types."""
    return check_columns(_struct_in(file, form, storage), topic)


class FilesCopy:
    """Writes the files of an ingest's micro-batches to a topic. ``transform``: called with their rows; ``written``:
    counts of the last commit."""

    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        form: Form,
        storage: HadoopSettings,
        written: LastWritten,
        transform: RowTransform | None = None,
    ) -> None:
        """Raises SchemaError and RowError for a transform of lines that does not fit these, or the sink."""
        self.written = written
        self._spark, self._topic, self._form, self._storage, self._transform = spark, topic, form, storage, transform
        self._transforms: dict[str, Transform] = {}
        self._tried: set[str] = set()
        if transform is not None and not form.parquet:
            self._checked(transform, _with_place(_LINES))

    def write(self, splits: Splits, options: WriteOptions, notes: Notes) -> None:
        """Write a micro-batch, and return when it is committed. ``options``: of the write. Raises FileError,
        SchemaError for columns that the sink does not have, other EosErrors, and Spark's errors."""
        write_by_job(self._spark.sparkContext, options, self._rows_of(splits, notes), len(splits))

    def _rows_of(self, splits: Splits, notes: Notes) -> FileRows:
        file = splits[0][0]
        if self._transform is None:
            columns = columns_in(file, self._form, self._storage, self._topic)
            return FileRows(self._form, splits, columns, self._storage, self.written, notes)
        struct = given_in(file, self._form, self._storage)
        transform = self._checked(self._transform, struct)
        self._try_once(splits, transform, struct)
        plain = FileRows(self._form, splits, transform.columns, self._storage, self.written, notes)
        return replace(plain, transform=transform, given=arrow_schema(struct))

    def _checked(self, transform: RowTransform, struct: StructType) -> Transform:
        """Return the transform with the columns that it returns for these."""
        fitted = self._transforms.get(struct.json())
        if fitted is None:
            empty = pa.RecordBatch.from_pylist([], schema=arrow_schema(struct))
            fitted = checked(transform.function, transform.name, empty, self._topic, transform.on_malformed, LINE)
            self._transforms[struct.json()] = fitted
        return fitted

    def _try_once(self, splits: Splits, transform: Transform, struct: StructType) -> None:
        """Try the transform on rows that have these columns, unless it was."""
        from spark_eos.pipelines.files.sample import check_by_sample  # not for tasks

        columns = struct.json()
        file = next((file for files in splits for file in files if file.size), splits[0][0])
        if columns not in self._tried and check_by_sample(
            transform, file, self._form, arrow_schema(struct), self._storage
        ):
            self._tried.add(columns)
