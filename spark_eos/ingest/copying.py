"""Files to a topic past the JVM: Spark hands the tasks numbers of splits, and they read the files themselves.

A task reads a file as the data source of rows does (`spark_eos.ingest.source.read_file`). So both ways have the same
rows in the same tasks, with the same digests, and either of them can repair what the other one has decided.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceWriter
from pyspark.sql.types import StringType, StructType

from spark_eos import metrics_events
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.copy.transforming import TYPES
from spark_eos.copy.written import LastWritten
from spark_eos.ingest.folder import File
from spark_eos.ingest.notes import Splits
from spark_eos.ingest.source import (
    FILE,
    FORM,
    LINE,
    SPLITS,
    Form,
    form_of,
    malformed,
    options_of,
    parquet_schema,
    read_file,
    spark_schema,
    splits_of,
)
from spark_eos.options.writes import write_options
from spark_eos.sink.batch_writer import EosKafkaBatchWriter
from spark_eos.sink.counting import CountingIterator
from spark_eos.sink.schema import Columns, check_columns
from spark_eos.spark.by_value import by_value
from spark_eos.spark.datasource import EosKafkaDataSource
from spark_eos.spark.tracebacks import hidden_traceback

if TYPE_CHECKING:
    from spark_eos.protocol.task import TaskReport
    from spark_eos.sink.job import Identity, SinkJob

#: Options of the data source, beside those of the write and `options_of`.
_COLUMNS = "columns"
#: What lines have as rows.
_LINES = StructType().add("value", StringType())


@dataclass(frozen=True)
class FileRows:
    """The rows of a micro-batch's files, whose columns are the sink's. See `spark_eos.sink.job.RowSource`.

    ``splits``: what each task reads; ``storage``: Hadoop's settings of file systems; ``written``: where commits note
    what they wrote.
    """

    form: Form
    splits: Splits
    columns: Columns
    storage: HadoopSettings
    written: LastWritten

    def write(self, job: SinkJob, identity: Identity, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """In a task: write the rows of the splits whose numbers ``batches`` have. Raises FileError for a file that is
        not what was planned, and what `spark_eos.sink.task.run_task` raises."""
        from spark_eos.sink.task import run_task

        rows = CountingIterator(self._rows(batches))
        return replace(run_task(job, identity, rows), bytes=rows.bytes)

    def committed(self, batch: int, rows: int, size: int, dropped: int) -> None:
        """Note the micro-batch for the job."""
        self.written.note(batch, rows, size, dropped)

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            for file in self.splits[number]:
                for rows in read_file(file, self.form, self.storage):
                    yield _of_the_sink(rows, file)


def _of_the_sink(rows: pa.RecordBatch, file: File) -> pa.RecordBatch:
    """Rows of a file with the sink's types, without the columns for their place. Raises FileError for a value that such
    a type does not have."""
    names = [name for name in rows.schema.names if name not in (FILE, LINE)]
    try:
        return pa.record_batch({name: rows.column(name).cast(TYPES[name]) for name in names})
    except pa.ArrowException as error:
        raise malformed(file, f"its columns do not fit the topic: {error}") from None


def columns_in(file: File, form: Form, storage: HadoopSettings, topic: str) -> Columns:
    """The columns of a file for a topic, which are those of all files of its micro-batch. Raises FileError, and
    SchemaError for columns that no topic has, or with other types."""
    if not form.parquet:
        return check_columns(_LINES, topic)
    return check_columns(spark_schema(file, parquet_schema(file, storage)), topic)


class FilesCopyDataSource(EosKafkaDataSource):
    """Writes the files of an ingest's micro-batches. Made by `FilesCopy`."""

    _written = LastWritten()

    @hidden_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Called before any task: this also checks the cluster."""
        given = self.options
        columns = Columns(**json.loads(given[_COLUMNS]))
        rows = FileRows(form_of(given), splits_of(given), columns, self._settings, self._written)
        of_write = {name: value for name, value in given.items() if name not in (FORM, SPLITS, _COLUMNS)}
        return EosKafkaBatchWriter(write_options(of_write), rows, self._events)


class FilesCopy:
    """Writes the files of an ingest's micro-batches to a topic, by a data source that is registered with the session.
    ``written``: what the last commit has written."""

    def __init__(
        self, spark: SparkSession, topic: str, form: Form, storage: HadoopSettings, written: LastWritten
    ) -> None:
        self.written = written
        self._spark, self._topic, self._form, self._storage = spark, topic, form, storage
        self._format = name = f"eos-files-copy-{uuid.uuid4().hex[:8]}"
        named = {"name": classmethod(lambda cls: name), "_events": metrics_events.here()}
        spark.dataSource.register(by_value(FilesCopyDataSource, **named, _settings=storage, _written=written))

    def write(self, splits: Splits, options: Mapping[str, str]) -> None:
        """Write a micro-batch, and return when it is committed. ``options``: of the write. Raises FileError,
        SchemaError for columns that the sink does not have, and what Spark raises."""
        columns = columns_in(splits[0][0], self._form, self._storage, self._topic)
        own = {**options_of(self._form, splits), _COLUMNS: json.dumps(asdict(columns))}
        numbers = self._spark.range(len(splits), numPartitions=len(splits))
        numbers.write.format(self._format).mode("append").options(**options, **own).save()
