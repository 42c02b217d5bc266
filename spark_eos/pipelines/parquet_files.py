"""Parquet files: how many rows to read together, by which calendar dates are, and which timestamps lack a zone."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

#: Spark's note in a file whose dates and timestamps (or INT96 timestamps) are in the hybrid Julian calendar that it
#: used before version 3; and the first version whose files are in the other calendar (proleptic Gregorian) unless
#: noted.
_TIMES = b"org.apache.spark.legacyDateTime", b"3.0"
_INT96 = b"org.apache.spark.legacyINT96", b"3.1"
_SPARKS_VERSION = b"org.apache.spark.version"
_UTC = pa.timestamp("us", "UTC")


def rows_at_once(metadata: pq.FileMetaData, most_rows: int, most_bytes: int) -> int:
    """Return how many rows to read together: at most ``most_rows``, and about ``most_bytes``, by the average of their
    row group, in which values that repeat may count once: see `in_slices`. It depends on the footer alone."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    widest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(most_rows, most_bytes // max(widest, 1)))


def in_slices(rows: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in slices of about ``most_bytes`` or less in memory, by their average."""
    if not rows.num_rows or rows.get_total_buffer_size() <= most_bytes:  # known in a fiftieth of the time
        yield rows
        return
    count = max(1, min(rows.num_rows, -(-rows.nbytes // most_bytes)))
    step = -(-rows.num_rows // count)
    for begin in range(0, rows.num_rows, step):
        yield rows.slice(begin, step)


def is_by_old_calendar(metadata: pq.FileMetaData) -> bool:
    """Return whether dates and timestamps of a file are in the hybrid Julian calendar of old versions of Spark: Arrow
    would take them for other days."""
    noted = metadata.metadata or {}
    kinds = (_TIMES, _INT96) if any(_int96(metadata.schema)) else (_TIMES,)
    return any(note in noted or noted.get(_SPARKS_VERSION, first) < first for note, first in kinds)


def has_times(kind: pa.DataType) -> bool:
    """Return whether a type is a date or timestamp, or has one within it."""
    if types.is_date(kind) or types.is_timestamp(kind):
        return True
    return any(has_times(kind.field(place).type) for place in range(kind.num_fields))


def schema_of(file: pq.ParquetFile) -> pa.Schema:
    """Return the columns of a file that was opened with ``coerce_int96_timestamp_unit="us"``. INT96 columns get the
    zone UTC, with which they are written; Arrow reads them without a zone."""
    int96 = _int96(file.schema)
    if not any(int96):
        return file.schema_arrow
    leaves = iter(int96)
    return pa.schema([field.with_type(_typed(field.type, leaves)) for field in file.schema_arrow])


def _int96(schema: pq.ParquetSchema) -> list[bool]:
    """Return for each leaf column whether it is INT96."""
    return [schema.column(number).physical_type == "INT96" for number in range(len(schema))]


def _typed(kind: pa.DataType, leaves: Iterator[bool]) -> pa.DataType:
    """Set the zone UTC for INT96 leaves. ``leaves``: whether each leaf is INT96, from this type's first one on."""
    if isinstance(kind, pa.BaseExtensionType):
        _typed(kind.storage_type, leaves)
        return kind
    if types.is_struct(kind):
        return pa.struct([field.with_type(_typed(field.type, leaves)) for field in kind.fields])
    if types.is_map(kind):
        key, item = (field.with_type(_typed(field.type, leaves)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    if kind.num_fields:
        inner = kind.value_field.with_type(_typed(kind.value_type, leaves))
        if types.is_fixed_size_list(kind):
            return pa.list_(inner, kind.list_size)
        return pa.large_list(inner) if types.is_large_list(kind) else pa.list_(inner)
    return _UTC if next(leaves) else kind
