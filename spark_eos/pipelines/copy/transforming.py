"""A range's records through the user's function: cut into chunks, given to it, and its result as the sink's columns.

Chunks depend on offsets and sizes of the records only, never on how they were fetched: they end at multiples of
`CHUNK_OFFSETS`, and before `CHUNK_BYTES`. So a replay gives the function the same chunks as the first attempt.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.base.log import logger
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import EosError, stop
from spark_eos.kafka import letter_headers
from spark_eos.pipelines.arrow_fields import is_bytes, is_list, is_text, lost_field, plain_type
from spark_eos.pipelines.copy.plan import Function, OnMalformed, RowTransform, Transform
from spark_eos.source.schema import ARROW_HEADERS
from spark_eos.spi import Columns

CHUNK_OFFSETS = 8192
CHUNK_BYTES = 16 << 20
_ODD = np.uint64(0x9E3779B97F4A7C15)
#: Room for the rows that come of one chunk.
_ROWS_OF_CHUNK = np.uint64(1 << 24)

#: Columns of a result by which a transform rejects records: the reason, null for a row that is to be written, and the
#: offset of the record that the row comes from. Records of other sources are numbered by another column.
ERROR, OFFSET = "error", "offset"
#: The exception that headers of such a dead letter name.
REJECTED = "EOS_RECORD_REJECTED"

HEADERS_TYPE = ARROW_HEADERS.type
TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "headers": HEADERS_TYPE,
    "timestamp": pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True)
class Chunk:
    """Records of one partition or file, as the source's columns; ``first``: the offset or line of the first one."""

    rows: pa.RecordBatch
    first: int

    def row_numbers(self, range_: OffsetRange, count: int) -> np.ndarray:
        """Return a number for each row that results from the chunk, in order."""
        return row_numbers(range_.topic, range_.partition, self.first, count)


def row_numbers(topic: str, partition: int, first: int, count: int) -> np.ndarray:
    """Return a number for each of the ``count`` rows, in order, that result from the chunk at offset ``first``."""
    begin = np.array([digest_at(0, topic, partition, first)], np.uint64)
    return begin * _ROWS_OF_CHUNK + np.arange(count, dtype=np.uint64)


def digest_at(digest: int, topic: str, partition: int, offset: int) -> int:
    """Combine a digest of rows with the offset that they were read from, so that rows which are swapped with rows of
    another partition show."""
    number = (crc32(topic.encode()) << 32) ^ (partition << 40) ^ offset
    mixed = ((number + digest) * int(_ODD)) & (1 << 64) - 1
    return mixed ^ mixed >> 32


def chunks(
    batches: Iterable[pa.RecordBatch],
    *,
    offsets: int = CHUNK_OFFSETS,
    most_bytes: int = CHUNK_BYTES,
    number_column: str = OFFSET,
    sizes_of: Callable[[pa.RecordBatch], np.ndarray] | None = None,
) -> Iterator[Chunk]:
    """Yield all records, in order; none of the chunks is empty. A record that is larger than a chunk is one alone.
    ``number_column``: the column that numbers them; ``sizes_of``: the bytes of each record, by default those of key and
    value."""
    held: list[pa.RecordBatch] = []
    size, sizes_of = 0, sizes_of or _sizes
    for batch in batches:
        for piece in _at_multiples(batch, offsets, number_column):
            if held and _first(piece, number_column) // offsets != _first(held[0], number_column) // offsets:
                yield _chunk(held, number_column)
                held, size = [], 0
            sizes = sizes_of(piece)
            while size + int(sizes.sum()) > most_bytes:
                fit = int(np.searchsorted(np.cumsum(sizes), most_bytes - size, side="right"))
                fit = fit or (0 if held else 1)
                if fit:
                    held.append(piece.slice(0, fit))
                yield _chunk(held, number_column)
                held, size, piece, sizes = [], 0, piece.slice(fit), sizes[fit:]
            if piece.num_rows:
                held.append(piece)
                size += int(sizes.sum())
    if held:
        yield _chunk(held, number_column)


def _at_multiples(batch: pa.RecordBatch, offsets: int, number_column: str) -> Iterator[pa.RecordBatch]:
    """Yield the parts of a batch, cut at multiples of a number of offsets."""
    number = batch.column(number_column).to_numpy() // offsets
    cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), batch.num_rows]
    for begin, end in pairwise(cuts):
        if end > begin:
            yield batch.slice(begin, end - begin)


def _first(batch: pa.RecordBatch, number_column: str) -> int:
    first: int = batch.column(number_column)[0].as_py()
    return first


def _sizes(batch: pa.RecordBatch) -> np.ndarray:
    """Return the bytes of key and value of each record."""
    lengths = [pc.fill_null(pc.binary_length(batch.column(name)), 0) for name in ("key", "value")]
    total: np.ndarray = pc.add(*lengths).to_numpy(zero_copy_only=False).astype(np.int64)
    return total


def _chunk(held: list[pa.RecordBatch], number_column: str) -> Chunk:
    return Chunk(held[0] if len(held) == 1 else pa.concat_batches(held), _first(held[0], number_column))


@dataclass(frozen=True)
class Transformed:
    """Result of a transform for some records: ``rows`` with the sink's columns, and the records that it ``rejected``:
    the reason for each, by its number among them."""

    rows: pa.RecordBatch
    rejected: Mapping[int, str]


def transformed(transform: Transform, chunk: Chunk) -> Transformed:
    """Return the chunk's rows for topics. Raises SchemaError, RowError, and errors of the function."""
    return split(transform, chunk.rows, *returned(transform, chunk))


def split(
    transform: Transform,
    records: pa.RecordBatch,
    result: pa.RecordBatch,
    failed: Mapping[int, str],
    number_column: str = OFFSET,
) -> Transformed:
    """Split a result into rows and rejected records. ``result``, ``failed``: as `called` returns them, for these
    records; ``number_column``: the column that numbers them. Raises SchemaError, RowError."""
    batch, reasons = without_rejected(result, number_column=number_column)
    rows = as_sink_rows(batch)
    if columns_of(rows.schema.names, transform.columns.topic) != transform.columns:
        raise stop("EOS_TRANSFORM_RESULT.empty_batch", columns=", ".join(rows.schema.names))
    return Transformed(rows, {**reasons_by_row(records, reasons, number_column), **failed})


def returned(transform: RowTransform, chunk: Chunk) -> tuple[pa.RecordBatch, Mapping[int, str]]:
    """Call the function with the chunk. Returns its result, and its reasons for the records that it fails for, by their
    index in the chunk. Raises RowError, and errors of the function."""

    def where() -> str:
        partition = f"{chunk.rows.column('topic')[0]}-{chunk.rows.column('partition')[0]}"
        return f"records of {partition} from offset {chunk.first} on"

    return called(transform.function, chunk.rows, where, tolerant=transform.on_malformed != "fail")


def called(
    function: Function, rows: pa.RecordBatch, where: Callable[[], str], *, tolerant: bool
) -> tuple[pa.RecordBatch, Mapping[int, str]]:
    """Call the function. Returns its result, and its reasons for the rows that it fails for, by their index. ``where``:
    describes the rows for the log, and for a note on an exception of the function; ``tolerant``: whether to ask for
    such reasons, if the function can give them. Raises RowError, and errors of the function."""
    rejecting = getattr(function, "rejecting", None) if tolerant else None
    failed: Mapping[int, str] = {}
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("the transform is given %s", where())
    try:
        if rejecting is None:
            result = function(rows)
        else:
            result, failed = rejecting(rows)
    except Exception as error:
        error.add_note(f"The transform raised this for {where()}.")
        raise
    return as_batch(result), failed


def rejection(records: pa.RecordBatch, rejected: Mapping[int, str]) -> EosError:
    """Return the error that stops a query at the first record that was rejected. ``rejected``: as of `Transformed`."""
    first = min(rejected)
    at = {name: records.column(name)[first].as_py() for name in ("topic", "partition", "offset")}
    return stop("EOS_RECORD_REJECTED.record", **at, reason=rejected[first])


def without_rejected(
    result: pa.RecordBatch, *, keeps_offset: bool = False, number_column: str = OFFSET
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Return the rows that have no ``error``, without this column and, unless ``keeps_offset``, the offset beside it;
    and the reasons of the others by their offsets. ``number_column``: the column of these. Raises SchemaError."""
    if ERROR not in result.schema.names:
        return result, {}
    if number_column not in result.schema.names:
        raise stop(
            "EOS_SCHEMA_INVALID.transform_reject",
            column=ERROR,
            place=number_column,
            error=ERROR,
            problem=f"comes without the column '{number_column}'",
        )
    errors, offsets = result.column(ERROR), result.column(number_column)
    _check_rejecting(errors.type, offsets.type, number_column)
    rest = result.drop_columns([ERROR] if keeps_offset else [ERROR, number_column])
    if errors.null_count == len(errors):
        return rest, {}
    bad = errors.is_valid()
    reasons: dict[int, str] = {}
    texts = errors.filter(bad).cast(pa.binary()).to_pylist()
    for offset, text in zip(offsets.filter(bad).to_pylist(), texts, strict=True):
        reasons.setdefault(offset, text.decode(errors="replace"))
    return rest.filter(errors.is_null()), reasons


def _check_rejecting(errors: pa.DataType, offsets: pa.DataType, number_column: str) -> None:
    """Raise SchemaError where a value may mean something else than a reason, such as false, or than a number."""
    kinds = {ERROR: (errors, _is_text, "a text"), number_column: (offsets, pa.types.is_integer, "a whole number")}
    for column, (type_, fits, wanted) in kinds.items():
        if not fits(type_) and not pa.types.is_null(type_):
            raise stop(
                "EOS_SCHEMA_INVALID.transform_reject",
                column=column,
                error=ERROR,
                place=number_column,
                problem=f"is {type_}, not {wanted}",
            )


def reasons_by_row(records: pa.RecordBatch, reasons: Mapping[int, str], number_column: str = OFFSET) -> dict[int, str]:
    """Return the reasons by the rows of the batch instead of offsets. Raises RowError for an offset that is not in
    it."""
    if not reasons:
        return {}
    rows = {offset: row for row, offset in enumerate(records.column(number_column).to_pylist())}
    unknown = [offset for offset in reasons if offset not in rows]
    if unknown:
        raise stop("EOS_TRANSFORM_RESULT.rejected", column=number_column, number=unknown[0])
    return {rows[offset]: reason for offset, reason in reasons.items()}


def letters_of(chunk: Chunk, rejected: Mapping[int, str], cluster: str) -> pa.RecordBatch:
    """Return the rejected records as dead letters: key and value as they were, and headers that say why and where from.
    ``cluster``: the id of the source's, empty where it is not known."""
    records = chunk.rows.take(pa.array(sorted(rejected), pa.int64()))
    own = records.column("headers").to_pylist() if "headers" in records.schema.names else [None] * records.num_rows
    positions = zip(*(records.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    headers = [
        [*(mine or ()), *_why(reason, cluster, *position)]
        for mine, (_, reason), position in zip(own, sorted(rejected.items()), positions, strict=True)
    ]
    columns = [records.column("key"), records.column("value"), pa.array(headers, HEADERS_TYPE)]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value", "headers"])


def _why(reason: str, cluster: str, topic: str, partition: int, offset: int) -> list[dict[str, object]]:
    texts = {
        letter_headers.EXCEPTION: REJECTED,
        letter_headers.MESSAGE: reason,
        letter_headers.SOURCE_TOPIC: topic,
        letter_headers.SOURCE_PARTITION: str(partition),
        letter_headers.SOURCE_OFFSET: str(offset),
        letter_headers.SOURCE_CLUSTER: cluster,
    }
    return [{"key": name, "value": text.encode()} for name, text in texts.items()]


def columns_of(names: list[str], by_column: bool) -> Columns:
    """Return the columns of a result. ``by_column``: whether the column ``topic``, if there is one, chooses the
    topic."""
    return Columns(
        key="key" in names,
        topic=by_column and "topic" in names,
        partition="partition" in names,
        headers="headers" in names,
        timestamp="timestamp" in names,
    )


def checked(
    function: Function,
    name: str,
    empty: pa.RecordBatch,
    topic: str | None,
    on_malformed: OnMalformed = "fail",
    number_column: str = OFFSET,
) -> Transform:
    """Return the function as a transform, with the columns that it returns when it is called once with an empty batch.
    Raises SchemaError, RowError."""
    rows = as_sink_rows(without_rejected(as_batch(function(empty)), number_column=number_column)[0])
    return transform_to(topic, function, name, rows, on_malformed)


def transform_to(
    topic: str | None, function: Function, name: str, rows: pa.RecordBatch, on_malformed: OnMalformed = "fail"
) -> Transform:
    """Return the function as a transform to the topic, or to the topics in a column. ``rows``: its result. Raises
    SchemaError."""
    columns = columns_of(rows.schema.names, topic is None)
    if topic is None and not columns.topic:
        raise stop("EOS_SCHEMA_INVALID.topic", column="topic", where=" in the transform's result")
    return Transform(function, name, columns, on_malformed=on_malformed)


def as_sink_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the sink's columns, with their types. Raises SchemaError, RowError."""
    names = batch.schema.names
    unknown = [name for name in names if name not in TYPES]
    if unknown:
        raise stop(
            "EOS_SCHEMA_INVALID.unknown",
            column=unknown[0],
            columns=", ".join(TYPES),
            where=" in the transform's result",
        )
    if "value" not in names:
        raise stop("EOS_SCHEMA_INVALID.value", column="value", where=" in the transform's result", why="")
    return pa.RecordBatch.from_arrays([as_column(name, batch.column(name)) for name in names], names=names)


def as_batch(result: Any) -> pa.RecordBatch:  # noqa: ANN401  # the user's function may return anything
    """Return a function's result as one batch, each of whose columns is there once and can be filtered. Raises
    RowError, SchemaError."""
    batch = _one_batch(result)
    names = batch.schema.names
    if len(set(names)) < len(names):
        raise stop(
            "EOS_SCHEMA_INVALID.twice",
            column=next(name for name in names if names.count(name) > 1),
            where=" in the transform's result",
        )
    for index, field in enumerate(batch.schema):
        wanted = plain_type(field.type)
        if wanted != field.type:
            batch = batch.set_column(index, field.with_type(wanted), batch.column(index).cast(wanted))
    return batch


def _one_batch(result: Any) -> pa.RecordBatch:  # noqa: ANN401  # as above
    """Convert a result to one batch. Raises RowError."""
    if isinstance(result, pa.RecordBatch):
        return result
    if not isinstance(result, pa.Table) and hasattr(result, "__arrow_c_stream__"):
        result = pa.table(result)
    if isinstance(result, pa.Table):
        batches = result.combine_chunks().to_batches()
        if len(batches) > 1:
            raise stop("EOS_TRANSFORM_RESULT.too_large", rows=result.num_rows, chunk_bytes=CHUNK_BYTES >> 20)
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=result.schema)
    raise stop("EOS_TRANSFORM_RESULT.no_arrow", type=type(result).__name__)


def as_column(name: str, column: pa.Array) -> pa.Array:
    """Return a column of a result as the sink's column of that name. Raises SchemaError."""
    wanted = TYPES[name]
    if column.type == wanted:
        return column
    lost = lost_field(column.type, wanted)
    if lost is not None:
        raise _unfit(name, column.type, f"it has no field '{lost}'")
    if not pa.types.is_null(column.type) and not _TAKEN[name](column.type):
        raise _unfit(name, column.type, "a value of this type is not made of values of another kind")
    try:
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise _unfit(name, column.type, error) from None


def _unfit(name: str, type_: pa.DataType, error: object) -> EosError:
    return stop(
        "EOS_SCHEMA_INVALID.type",
        column=name,
        type=f"{type_}, which cannot be converted: {error}",
        types=TYPES[name],
        remedy="cast it in the transform",
        where=" in the transform's result",
    )


def _values_of(type_: pa.DataType) -> pa.DataType:
    """Return the type, or the type of a dictionary's values."""
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _is_text(type_: pa.DataType) -> bool:
    return is_text(_values_of(type_))


def _is_text_or_bytes(type_: pa.DataType) -> bool:
    plain = _values_of(type_)
    return is_text(plain) or is_bytes(plain) or pa.types.is_fixed_size_binary(plain) or pa.types.is_null(plain)


def _is_list_of_headers(type_: pa.DataType) -> bool:
    """Return whether it has structs, or entries of a map; a list without a header may have no type for one."""
    if pa.types.is_map(type_):
        return _is_text_or_bytes(type_.key_type) and _is_text_or_bytes(type_.item_type)
    if not is_list(type_) or pa.types.is_list_view(type_):
        return False
    each = type_.value_type
    return pa.types.is_null(each) or (pa.types.is_struct(each) and all(_is_text_or_bytes(field.type) for field in each))


#: By column, the types that are cast, as another form of the same values. Of others Arrow would make something else: a
#: moment of a number, as so many microseconds, and a number of a date.
_TAKEN: dict[str, Callable[[pa.DataType], bool]] = {
    "key": _is_text_or_bytes,
    "value": _is_text_or_bytes,
    "topic": _is_text_or_bytes,
    "partition": pa.types.is_integer,
    "headers": _is_list_of_headers,
    "timestamp": pa.types.is_timestamp,
}
