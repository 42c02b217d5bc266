"""Data files of a table, which tasks write and report to the driver.

A file's name is never used again, so that no attempt of a task can overwrite another's file. Readers see a file when a
commit of the table names it; they never list folders.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import pyarrow as pa
import pyarrow.parquet as pq

from spark_eos.base import system
from spark_eos.base.log import logger
from spark_eos.errors import stop
from spark_eos.pipelines.parquet_files import in_slices
from spark_eos.pipelines.tables.keys import Key, by_key
from spark_eos.pipelines.tables.partitions import Partition, by_partition, directory_of
from spark_eos.pipelines.tables.statistics import Collector, ColumnStatistics
from spark_eos.pipelines.tables.values import check_columns
from spark_eos.spi import Store

Codec = Literal["snappy", "zstd"]
#: Parquet's physical types of floating point.
_FLOATING = frozenset({"FLOAT", "DOUBLE"})
_QUERY = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class DataFile:
    """A complete file in the store, for a commit of the table.

    ``path``: relative to the store, with ``/``, not URL-encoded; ``partition_values``: a text for each partition
    column or key, None for null; ``written_at_ms``: when it was begun, in milliseconds since 1970.
    """

    path: str
    size_bytes: int
    rows: int
    written_at_ms: int
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    statistics: tuple[ColumnStatistics, ...] = ()


@dataclass(frozen=True)
class FileLayout:
    """How rows are written to files.

    ``schema``: the table's columns, including the partition columns, which files do not have. ``keys``: computed from
    columns, which files have; all files are in one folder then. ``target_bytes``: the size at which a file is finished;
    it may be larger by a row group. ``row_group_bytes``: of a row group, in memory. ``buffer_bytes``: of the buffered
    rows of all partitions, in memory. ``open_files``: the most files that are written at the same time; if another one
    is needed, the least recently written is finished. ``most_partitions``: of a task. ``statistics_columns``: the
    number of leaf columns with statistics, among columns whose type has bounds.
    """

    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    codec: Codec = "snappy"
    target_bytes: int = 128 << 20
    row_group_bytes: int = 32 << 20
    buffer_bytes: int = 64 << 20
    open_files: int = 16
    most_partitions: int = 1000
    statistics_columns: int = 32
    keys: tuple[Key, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of a file's partition values."""
        return self.partition_by or tuple(key.name for key in self.keys)


@dataclass(frozen=True)
class FileAttempt:
    """An attempt of a task, which writes files. ``query``: letters, digits and ``_.-``, such as Spark's id."""

    query: str
    batch: int
    partition: int
    attempt: int

    def new_name(self) -> str:
        """Return a name for a file, used for the first time."""
        if not _QUERY.fullmatch(self.query):
            raise ValueError(f"{self} is no part of a file's name")
        return f"eos-{self.query}-{self.batch}-{self.partition}-{self.attempt}-{secrets.token_hex(8)}.parquet"


class FileWriter:
    """Writes the rows of one attempt of a task as Parquet files.

    ::

        with FileWriter(store, layout, attempt) as writer:
            for batch in batches:
                writer.write(batch)
            files = writer.close()

    The files are deleted if the block ends with an error or without `close`. Raises SchemaError for columns that a
    table cannot have.
    """

    def __init__(self, store: Store, layout: FileLayout, attempt: FileAttempt) -> None:
        check_columns(layout.schema, layout.partition_by)
        self._store = store
        self._layout = layout
        self._attempt = attempt
        self._body = pa.schema([column for column in layout.schema if column.name not in layout.partition_by])
        self._with_statistics = _with_statistics(self._body)
        #: One for each partition so far, also if nothing is left in it.
        self._buffers: dict[Partition, _Buffer] = {}
        self._held_bytes = 0
        #: The least recently written file comes first.
        self._open: dict[Partition, _OpenFile] = {}
        self._begun: list[str] = []
        self._files: list[DataFile] = []
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error or not self._closed:
            self.abort()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch with the layout's schema (`spark_eos.pipelines.tables.values.conformed`).

        Raises NoPartition for a value that cannot be a partition value, EosError for too many partitions, and errors of
        the store.
        """
        if not batch.schema.equals(self._layout.schema):
            raise ValueError(f"the batch has other columns than the layout: {batch.schema}")
        for partition, rows in self._split(batch):
            for piece in in_slices(rows, self._layout.row_group_bytes):
                self._add(partition, piece)

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        if self._layout.keys:
            return by_key(batch, self._layout.keys)
        return by_partition(batch, self._layout.partition_by)

    def close(self) -> tuple[DataFile, ...]:
        """Finish all files. Raises the store's errors; then no file may be committed."""
        for partition in list(self._buffers):
            self._flush(partition)
            self._finish(partition)
        self._closed = True
        return tuple(self._files)

    def abort(self) -> None:
        """Delete all files, which are in no commit. A file that cannot be deleted is logged."""
        for file in self._open.values():
            file.drop()
        self._open.clear()
        self._buffers.clear()
        left = [path for path in self._begun if not _deleted(self._store, path)]
        if left:
            logger.info("Files of a failed attempt were not deleted; they are in no commit: %s", ", ".join(left))
        self._begun.clear()

    def _add(self, partition: Partition, rows: pa.RecordBatch) -> None:
        buffer = self._buffers.get(partition)
        if buffer is None:
            buffer = self._buffers[partition] = self._new(partition)
        size = rows.nbytes
        if buffer.held_bytes + size > self._layout.row_group_bytes:
            self._flush(partition)
        buffer.batches.append(rows)
        buffer.held_bytes += size
        self._held_bytes += size
        while self._held_bytes > self._layout.buffer_bytes:
            self._flush(max(self._buffers, key=lambda one: self._buffers[one].held_bytes))

    def _new(self, partition: Partition) -> _Buffer:
        if len(self._buffers) >= self._layout.most_partitions:
            columns = ", ".join(self._layout.parts)
            raise stop("EOS_TABLE_PARTITIONS", most=self._layout.most_partitions, columns=columns)
        return _Buffer("" if self._layout.keys else directory_of(self._layout.partition_by, partition))

    def _flush(self, partition: Partition) -> None:
        """Write the buffered rows of a partition as a row group."""
        buffer = self._buffers[partition]
        if not buffer.batches:
            return
        table = pa.Table.from_batches(buffer.batches, self._body)
        self._held_bytes -= buffer.held_bytes
        buffer.batches, buffer.held_bytes = [], 0
        file = self._open.pop(partition, None) or self._begin(buffer.directory)
        self._open[partition] = file
        file.write(table)
        if file.size_bytes >= self._layout.target_bytes:
            self._finish(partition)

    def _begin(self, directory: str) -> _OpenFile:
        if len(self._open) >= self._layout.open_files:
            self._finish(next(iter(self._open)))
        path = directory + self._attempt.new_name()
        place = _place(self._store, path)
        if self._store.renames:
            self._store.files.create_dir(place.rpartition("/")[0], recursive=True)
        self._begun.append(path)
        sink = self._store.files.open_output_stream(place, compression=None)
        return _OpenFile(path, sink, self._body, self._layout, self._with_statistics)

    def _finish(self, partition: Partition) -> None:
        file = self._open.pop(partition, None)
        if file is None:
            return
        try:
            size = file.close()
        except BaseException:
            file.drop()
            raise
        if self._store.local:
            _sync(Path(_place(self._store, file.path)))
        values = dict(zip(self._layout.parts, partition, strict=True))
        self._files.append(DataFile(file.path, size, file.rows, file.began_at_ms, values, file.statistics))


@dataclass
class _Buffer:
    """The buffered rows of a partition."""

    directory: str
    batches: list[pa.RecordBatch] = field(default_factory=list)
    held_bytes: int = 0


class _OpenFile:
    """A file that is being written."""

    def __init__(
        self, path: str, sink: pa.NativeFile, schema: pa.Schema, layout: FileLayout, with_statistics: list[str]
    ) -> None:
        self.path = path
        self.rows = 0
        self.began_at_ms = int(system.time_of_day() * 1000)
        self._sink = sink
        self._statistics = Collector(schema, layout.statistics_columns)
        self._writer = pq.ParquetWriter(sink, schema, compression=layout.codec, write_statistics=with_statistics)

    @property
    def size_bytes(self) -> int:
        """The bytes that were written so far."""
        return int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        """Write a row group."""
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._statistics.add(rows)
        self.rows += rows.num_rows

    @property
    def statistics(self) -> tuple[ColumnStatistics, ...]:
        return self._statistics.statistics()

    def close(self) -> int:
        """Complete the file, and return its size in bytes."""
        self._writer.close()
        size = self.size_bytes
        self._sink.close()
        return size

    def drop(self) -> None:
        """Give up the file, in any state."""
        for one in (self._writer, self._sink):
            with contextlib.suppress(Exception):
                one.close()


def _with_statistics(schema: pa.Schema) -> list[str]:
    """Return the paths of the leaf columns for which row groups have bounds: all but floating point, whose bounds Arrow
    takes without NaN, so that readers would skip rows with NaN. A path does not tell a field ``b`` of ``a`` from a
    column ``a.b``, which goes without, too."""
    buffer = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), buffer)
    schema_there = pq.ParquetFile(pa.BufferReader(buffer.getvalue())).schema
    leaves = [schema_there.column(number) for number in range(len(schema_there))]
    floating = {leaf.path for leaf in leaves if leaf.physical_type in _FLOATING}
    return [leaf.path for leaf in leaves if leaf.path not in floating]


def _place(store: Store, path: str) -> str:
    return f"{store.root.rstrip('/')}/{path}"


def _deleted(store: Store, path: str) -> bool:
    try:
        store.files.delete_file(_place(store, path))
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _sync(path: Path) -> None:
    """Write the file and its name to disk, so that a committed file survives a power failure."""
    for one in (path, path.parent):
        descriptor = os.open(one, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
