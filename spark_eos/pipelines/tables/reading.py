"""The rows of a table's data file, with the table's columns and types, in pieces that are always the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from spark_eos.errors import stop
from spark_eos.pipelines.parquet_files import has_times, in_slices, is_by_old_calendar, rows_at_once, schema_of
from spark_eos.pipelines.tables.partitions import NoPartition, value_of
from spark_eos.pipelines.tables.values import conformed
from spark_eos.spi import Store

#: The most rows of a piece, and about the most bytes, by averages of its file and of the rows that are read together.
PIECE_ROWS, PIECE_BYTES = 8192, 16 << 20


@dataclass(frozen=True)
class RowSlice:
    """Rows of a file, in order; ``first``: the number of the first one in the file."""

    rows: pa.RecordBatch
    first: int


@dataclass(frozen=True)
class FileReader:
    """Reads files of one table. ``path``: the table's, for messages; ``schema``: its columns, including
    ``partition_by``."""

    store: Store
    path: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()

    def pieces(self, name: str, size: int, partition: str) -> Iterator[RowSlice]:
        """Yield all rows of a file. ``name``: its path in the table; ``size``: its bytes; ``partition``: its partition
        values, as in `spark_eos.pipelines.tables.delta.versions.FILES`.

        Raises DataLossError (EOS_DELTA_DATA_LOSS) where it is gone or another one, and TableError and SchemaError where
        it does not fit the table.
        """
        where = f"{name}, table {self.path}"
        try:
            with self.store.files.open_input_file(f"{self.store.root}/{name}") as opened:
                there = opened.size()
                if there != size:
                    cause = f"{where}: it has {there} bytes, and by the log {size}"
                    raise stop("EOS_DELTA_DATA_LOSS.files", cause=cause)
                values = self._values(partition, where)
                with pq.ParquetFile(opened, coerce_int96_timestamp_unit="us") as file:
                    self._check(file, where)
                    there = schema_of(file)
                    first = 0
                    for rows in _pieces(file):
                        yield RowSlice(self._as_table(rows, there, values, where), first)
                        first += rows.num_rows
        except FileNotFoundError:
            raise stop("EOS_DELTA_DATA_LOSS.files", cause=where) from None
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # the latter for names of columns
            text = " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(".")
            raise stop("EOS_DELTA_FAILED", cause=f"{text} ({where})") from None

    def _values(self, partition: str, where: str) -> Mapping[str, pa.Scalar]:
        """Return the value of each partition column."""
        values = {}
        for name, text in zip(self.partition_by, json.loads(partition), strict=True):
            kind = self.schema.field(name).type
            try:
                values[name] = pa.scalar(None if text is None else value_of(text, kind), kind)
            except NoPartition as error:
                raise stop("EOS_DELTA_FAILED", cause=f"partition column {name} of {where}: {error}") from None
        return values

    def _check(self, file: pq.ParquetFile, where: str) -> None:
        """Check for columns of another spelling, which would be read as null, and for dates of the old calendar, which
        would be read as other dates."""
        names = file.schema_arrow.names
        spelled = {name.lower(): name for name in self.schema.names}
        other = [name for name in names if spelled.get(name.lower(), name) != name]
        if other or len({name.lower() for name in names}) < len(names):
            raise stop("EOS_DELTA_FAILED", cause=f"{where} has the columns {', '.join(names)}")
        if is_by_old_calendar(file.metadata) and any(map(has_times, self.schema.types)):
            cause = f"dates or timestamps of {where} are by Spark's old calendar"
            raise stop("EOS_DELTA_TABLE_SETTINGS.reading", path=self.path, rules=cause)

    def _as_table(
        self, rows: pa.RecordBatch, there: pa.Schema, values: Mapping[str, pa.Scalar], where: str
    ) -> pa.RecordBatch:
        """Convert rows to the table's columns. ``there``: the types of the rows, as `schema_of` returns them."""
        wanted = [column for column in self.schema if column.name not in values]
        given = [name for name in rows.schema.names if name in self.schema.names and name not in values]
        columns = [_in_utc(rows.column(name), there.field(name).type, self.schema.field(name).type) for name in given]
        fit = conformed(pa.RecordBatch.from_arrays(columns, names=given), pa.schema(wanted)) if given else None
        if fit is not None and fit.bad:
            place, reason = min(fit.bad.items())
            raise stop(
                "EOS_DELTA_FAILED", cause=f"a row of {where}, number {place + 1} of those read together: {reason}"
            )
        made = [
            pa.repeat(values[column.name], rows.num_rows)
            if column.name in values
            else pa.nulls(rows.num_rows, column.type)
            if fit is None
            else fit.rows.column(column.name)
            for column in self.schema
        ]
        return pa.RecordBatch.from_arrays(made, schema=self.schema)


def _pieces(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each row group, cut at multiples of a number that the file gives, and these pieces by their
    size: so they do not depend on how a version of Arrow hands them out."""
    metadata = file.metadata
    most = rows_at_once(metadata, PIECE_ROWS, PIECE_BYTES)
    for number in range(metadata.num_row_groups):
        held: list[pa.RecordBatch] = []
        for read in file.iter_batches(most, row_groups=[number], use_threads=False):
            rest = read
            while rest.num_rows:
                fit = most - sum(batch.num_rows for batch in held)
                held.append(rest.slice(0, fit))
                rest = rest.slice(fit)
                if sum(batch.num_rows for batch in held) == most:
                    yield from in_slices(_joined(held), PIECE_BYTES)
                    held = []
        if held:
            yield from in_slices(_joined(held), PIECE_BYTES)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _in_utc(column: pa.Array, there: pa.DataType, wanted: pa.DataType) -> pa.Array:
    """Take timestamps without a zone in the file for UTC where the table's column has that zone. INT96 timestamps,
    which are ``there`` with a zone, always are UTC, and do not fit a column without a zone."""
    kind = _utc(there, wanted)
    return column if kind == column.type else column.cast(kind)


def _utc(given: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return the type of a file's column, in UTC where the table's is, at any depth."""
    if given == pa.timestamp("us") and wanted == pa.timestamp("us", "UTC"):
        return wanted
    if types.is_struct(given) and types.is_struct(wanted):
        there = {field.name: field.type for field in wanted.fields}
        return pa.struct(
            [field.with_type(_utc(field.type, there.get(field.name, field.type))) for field in given.fields]
        )
    if types.is_list(given) and types.is_list(wanted):
        return pa.list_(given.value_field.with_type(_utc(given.value_type, wanted.value_type)))
    if types.is_map(given) and types.is_map(wanted):
        key, item = _utc(given.key_type, wanted.key_type), _utc(given.item_type, wanted.item_type)
        return pa.map_(given.key_field.with_type(key), given.item_field.with_type(item))
    return given
