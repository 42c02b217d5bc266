"""Parquet files of an ingest: their columns, with the types that Spark has for them, and their rows.

Types that Arrow would read otherwise than Spark are refused or put right: dates by Spark's old calendar, timestamps of
INT96, and names that differ only in capital letters, which are one name to Spark and DuckDB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from spark_eos.errors import stop
from spark_eos.pipelines.arrow_fields import plain_type
from spark_eos.pipelines.files.folder import File, HashedFile, blocks_of, check_unchanged, malformed, store_of
from spark_eos.pipelines.parquet_files import has_times, in_slices, is_by_old_calendar, rows_at_once, schema_of
from spark_eos.spi import HadoopSettings

#: Columns that an ingest adds: see `spark_eos.pipelines.files.source`.
ADDED = "_file", "_line"
#: The most rows, and about the most bytes, by the average of their row group, that are read together.
_ROWS, _BYTES = 10_000, 16 << 20
#: A file of at most this many bytes is kept in memory while it is checked, and is not read again for its rows.
_HELD_BYTES = 32 << 20


def batches(file: File, hashed: HashedFile, settings: HadoopSettings) -> Iterator[pa.RecordBatch]:
    """Yield all rows. Raises FileError, also for a file that is not as planned."""
    held = [block for block in hashed.blocks() if file.size <= _HELD_BYTES]  # all of it: rows are found by the footer
    hashed.check()
    data = pa.BufferReader(b"".join(held)) if held else None
    held.clear()
    with _opened(file, settings, data) as parquet:
        rows = 0
        for batch in parquet.iter_batches(rows_at_once(parquet.metadata, _ROWS, _BYTES)):
            yield from in_slices(batch, _BYTES)
            rows += batch.num_rows
        if rows != parquet.metadata.num_rows:
            raise malformed(file, f"it has {rows:,} rows, not {parquet.metadata.num_rows:,} as its footer says")


def first_batch(file: File, settings: HadoopSettings, count: int) -> Iterator[pa.RecordBatch]:
    """Yield at most so many rows of the beginning, in one batch; no batch for a file without rows. Raises FileError."""
    with _opened(file, settings) as parquet:
        for batch in parquet.iter_batches(min(count, rows_at_once(parquet.metadata, _ROWS, _BYTES))):
            yield batch
            return


def parquet_schema(file: File, settings: HadoopSettings) -> pa.Schema:
    """Return the columns of a file, with the storage types of extension types: newer versions of pyarrow make such ones
    of JSON and UUIDs. Raises FileError, also for a column with a name of `ADDED`."""
    with _opened(file, settings) as parquet:
        return pa.schema([field.with_type(plain_type(field.type)) for field in schema_of(parquet)])


@contextmanager
def _opened(file: File, settings: HadoopSettings, data: pa.BufferReader | None = None) -> Iterator[pq.ParquetFile]:
    """Open the file, and check its footer. ``data``: its bytes, where they were read before. Raises FileError, also for
    Arrow's errors within the block."""
    store = store_of(file.uri, settings)
    try:
        with data or store.files.open_input_file(store.root) as opened:
            parquet = _parquet(opened)
            _check(file, parquet)
            yield parquet
    except (pa.ArrowException, UnicodeDecodeError) as error:  # the latter for names of columns
        raise malformed(file, f"{type(error).__name__}: {error}") from None
    except OSError as error:  # Arrow raises it for damage, too
        if data is None:
            _check_damaged(file, settings, error)
        raise malformed(file, f"{type(error).__name__}: {error}") from None


def _parquet(opened: pa.NativeFile) -> pq.ParquetFile:
    return pq.ParquetFile(opened, page_checksum_verification=True, coerce_int96_timestamp_unit="us")


def _check_damaged(file: File, settings: HadoopSettings, error: OSError) -> None:
    """Raise FileError where it is not the content that made reading fail: the store cannot be read, or could not be for
    a moment, after which all of the file can."""
    check_unchanged(file, settings)
    for _ in blocks_of(file, settings):
        pass
    store = store_of(file.uri, settings)
    with suppress(pa.ArrowException, UnicodeDecodeError, OSError), store.files.open_input_file(store.root) as opened:
        parquet = _parquet(opened)
        for _ in parquet.iter_batches(rows_at_once(parquet.metadata, _ROWS, _BYTES)):
            pass
        raise stop("EOS_FILE_STORE", uri=file.uri, why=settings.hide(str(error)).rstrip("."))


def _check(file: File, parquet: pq.ParquetFile) -> None:
    names = parquet.schema_arrow.names
    file_column, line_column = ADDED
    if {name.lower() for name in names} & {*ADDED}:
        raise stop(
            "EOS_FILE_MALFORMED.columns",
            uri=file.uri,
            why=f"{file_column} and {line_column}, in whatever letters, are names of columns that the job adds",
        )
    alike = Counter(name.lower() for name in names)
    if twice := [name for name in names if alike[name.lower()] > 1]:
        raise stop(
            "EOS_FILE_MALFORMED.columns",
            uri=file.uri,
            why=f"the names {', '.join(twice)} are equal, or differ only in capital letters",
        )
    if is_by_old_calendar(parquet.metadata) and any(map(has_times, parquet.schema_arrow.types)):
        raise stop("EOS_FILE_MALFORMED.calendar", uri=file.uri)


#: Types that Spark does not have, and the types that it reads them as: the next ones that hold all values.
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}


def spark_schema(file: File, schema: pa.Schema) -> StructType:
    """Return the columns of a Parquet file as Spark reads them. Raises FileError for a column of a type that Spark
    lacks."""
    struct = StructType()
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        try:
            spark_type = from_arrow_type(_WIDER.get(kind, kind))
            for leaf in _leaves(spark_type):
                StructType.fromDDL(f"x {leaf.simpleString()}")
        except PySparkException:
            problem = stop(
                "EOS_FILE_MALFORMED.columns",
                uri=file.uri,
                why=f"{field.name} is of type {field.type}, which Spark does not have",
            )
            raise problem from None
        struct.add(field.name, spark_type)
    return struct


def _leaves(kind: DataType) -> Iterator[DataType]:
    """Yield the leaf types, as Spark's text of a struct does not quote its names."""
    if isinstance(kind, StructType):
        for field in kind:
            yield from _leaves(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from _leaves(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _leaves(kind.keyType)
        yield from _leaves(kind.valueType)
    else:
        yield kind
