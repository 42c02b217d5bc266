"""A range's records through the user's function: cut into chunks, given to it, and its result as the sink's columns.

Chunks are cut by what the records are, never by how they came: at offsets that are multiples of `CHUNK_OFFSETS`, and
before `CHUNK_BYTES`. So a replay gives the function what the first attempt gave to it.
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
from spark_eos.pipelines.arrow_fields import lost_field, plain_type
from spark_eos.pipelines.copy.plan import Function, OnMalformed, RowTransform, Transform
from spark_eos.source.schema import ARROW_HEADERS
from spark_eos.spi import Columns

CHUNK_OFFSETS = 8192
CHUNK_BYTES = 16 << 20
_ODD = np.uint64(0x9E3779B97F4A7C15)
#: Room for the rows that come of one chunk.
_ROWS_OF_CHUNK = np.uint64(1 << 24)

#: Columns of a result by which a transform rejects records: the reason, null for a row that is to be written, and the
#: offset of the record that the row comes from. Records of other sources may have another column for their places.
ERROR, OFFSET = "error", "offset"
#: The exception that headers of such a dead letter name.
REJECTED = "EOS_RECORD_REJECTED"

TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "headers": ARROW_HEADERS.type,
    "timestamp": pa.timestamp("us", tz="UTC"),
}


@dataclass(frozen=True)
class Chunk:
    """Records of one partition or file, as the source's columns; ``first``: the offset or line of the first one."""

    rows: pa.RecordBatch
    first: int

    def places(self, range_: OffsetRange, count: int) -> np.ndarray:
        """A number for each row that comes of the chunk, in order."""
        return places_from(range_.topic, range_.partition, self.first, count)


def places_from(topic: str, partition: int, first: int, count: int) -> np.ndarray:
    """A number for each row, in order, that comes of what stands at ``first`` in a partition."""
    begin = np.array([of_place(0, topic, partition, first)], np.uint64)
    return begin * _ROWS_OF_CHUNK + np.arange(count, dtype=np.uint64)


def of_place(digest: int, topic: str, partition: int, offset: int) -> int:
    """The digest of what was read from there, so that rows which change places with those of another partition show."""
    number = (crc32(topic.encode()) << 32) ^ (partition << 40) ^ offset
    mixed = ((number + digest) * int(_ODD)) & (1 << 64) - 1
    return mixed ^ mixed >> 32


def chunks(
    batches: Iterable[pa.RecordBatch],
    *,
    offsets: int = CHUNK_OFFSETS,
    most_bytes: int = CHUNK_BYTES,
    place: str = OFFSET,
    sizes_of: Callable[[pa.RecordBatch], np.ndarray] | None = None,
) -> Iterator[Chunk]:
    """All records, in order; none of the chunks is empty. A record that is larger than a chunk is one alone. ``place``:
    the column that numbers them; ``sizes_of``: the bytes of each record, by default those of key and value."""
    held: list[pa.RecordBatch] = []
    size, sizes_of = 0, sizes_of or _sizes
    for batch in batches:
        for piece in _at_multiples(batch, offsets, place):
            if held and _first(piece, place) // offsets != _first(held[0], place) // offsets:
                yield _chunk(held, place)
                held, size = [], 0
            sizes = sizes_of(piece)
            while size + int(sizes.sum()) > most_bytes:
                fit = int(np.searchsorted(np.cumsum(sizes), most_bytes - size, side="right"))
                fit = fit or (0 if held else 1)
                if fit:
                    held.append(piece.slice(0, fit))
                yield _chunk(held, place)
                held, size, piece, sizes = [], 0, piece.slice(fit), sizes[fit:]
            if piece.num_rows:
                held.append(piece)
                size += int(sizes.sum())
    if held:
        yield _chunk(held, place)


def _at_multiples(batch: pa.RecordBatch, offsets: int, place: str) -> Iterator[pa.RecordBatch]:
    """The parts of a batch that lie between multiples of so many offsets."""
    number = batch.column(place).to_numpy() // offsets
    cuts = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), batch.num_rows]
    for begin, end in pairwise(cuts):
        if end > begin:
            yield batch.slice(begin, end - begin)


def _first(batch: pa.RecordBatch, place: str) -> int:
    first: int = batch.column(place)[0].as_py()
    return first


def _sizes(batch: pa.RecordBatch) -> np.ndarray:
    """Bytes of key and value of each record."""
    lengths = [pc.fill_null(pc.binary_length(batch.column(name)), 0) for name in ("key", "value")]
    total: np.ndarray = pc.add(*lengths).to_numpy(zero_copy_only=False).astype(np.int64)
    return total


def _chunk(held: list[pa.RecordBatch], place: str) -> Chunk:
    return Chunk(held[0] if len(held) == 1 else pa.concat_batches(held), _first(held[0], place))


@dataclass(frozen=True)
class Transformed:
    """What a transform makes of some records: ``rows`` with the sink's columns, and the records that it ``rejected``:
    the reason for each, by its place among them."""

    rows: pa.RecordBatch
    rejected: Mapping[int, str]


def transformed(transform: Transform, chunk: Chunk) -> Transformed:
    """The chunk's rows for topics. Raises SchemaError, RowError, and what the function raises."""
    return split(transform, chunk.rows, *returned(transform, chunk))


def split(
    transform: Transform,
    records: pa.RecordBatch,
    result: pa.RecordBatch,
    failed: Mapping[int, str],
    place: str = OFFSET,
) -> Transformed:
    """The rows of a result, and what was rejected. ``result``, ``failed``: as of `called`, for these records;
    ``place``: the column that numbers them. Raises SchemaError, RowError."""
    batch, reasons = without_rejected(result, place=place)
    rows = conformed(batch)
    if columns_of(rows.schema.names, transform.columns.topic) != transform.columns:
        raise stop("EOS_TRANSFORM_RESULT.empty_batch", columns=", ".join(rows.schema.names))
    return Transformed(rows, {**places_of(records, reasons, place), **failed})


def returned(transform: RowTransform, chunk: Chunk) -> tuple[pa.RecordBatch, Mapping[int, str]]:
    """Give the chunk to the function: what it returns, and the reasons for records for which it fails by itself, by
    their places in the chunk. Raises RowError, and what the function raises."""

    def where() -> str:
        place = f"{chunk.rows.column('topic')[0]}-{chunk.rows.column('partition')[0]}"
        return f"records of {place} from offset {chunk.first} on"

    return called(transform.function, chunk.rows, where, tolerant=transform.on_malformed != "fail")


def called(
    function: Function, rows: pa.RecordBatch, where: Callable[[], str], *, tolerant: bool
) -> tuple[pa.RecordBatch, Mapping[int, str]]:
    """Call the function: what it returns, and the reasons for rows for which it fails by itself, by their places.
    ``where``: the rows, in words, for the log and a note on what the function raises; ``tolerant``: whether to take
    such reasons, where it can give them. Raises RowError, and what the function raises."""
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
    """The error that stops a query at the first record that was rejected. ``rejected``: as of `Transformed`."""
    first = min(rejected)
    place = {name: records.column(name)[first].as_py() for name in ("topic", "partition", "offset")}
    return stop("EOS_RECORD_REJECTED.record", **place, reason=rejected[first])


def without_rejected(
    result: pa.RecordBatch, *, keeps_offset: bool = False, place: str = OFFSET
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """The rows that have no ``error``, without this column and, unless ``keeps_offset``, the offset beside it; and the
    reasons of the others by their offsets. ``place``: the column of these. Raises SchemaError."""
    if ERROR not in result.schema.names:
        return result, {}
    if place not in result.schema.names:
        raise stop(
            "EOS_SCHEMA_INVALID.transform_reject",
            column=ERROR,
            place=place,
            error=ERROR,
            problem=f"comes without the column '{place}'",
        )
    errors, offsets = result.column(ERROR), result.column(place)
    _check_rejecting(errors.type, offsets.type, place)
    rest = result.drop_columns([ERROR] if keeps_offset else [ERROR, place])
    if errors.null_count == len(errors):
        return rest, {}
    bad = errors.is_valid()
    reasons: dict[int, str] = {}
    texts = errors.filter(bad).cast(pa.binary()).to_pylist()
    for offset, text in zip(offsets.filter(bad).to_pylist(), texts, strict=True):
        reasons.setdefault(offset, text.decode(errors="replace"))
    return rest.filter(errors.is_null()), reasons


def _check_rejecting(errors: pa.DataType, offsets: pa.DataType, place: str) -> None:
    """Raise SchemaError where a value may mean something else than a reason, such as false, or than a place."""
    kinds = {ERROR: (errors, _is_text, "a text"), place: (offsets, pa.types.is_integer, "a whole number")}
    for column, (type_, fits, wanted) in kinds.items():
        if not fits(type_) and not pa.types.is_null(type_):
            raise stop(
                "EOS_SCHEMA_INVALID.transform_reject",
                column=column,
                error=ERROR,
                place=place,
                problem=f"is {type_}, not {wanted}",
            )


def places_of(records: pa.RecordBatch, reasons: Mapping[int, str], place: str = OFFSET) -> dict[int, str]:
    """The reasons by places in the batch instead of offsets. Raises RowError for an offset that is not in it."""
    if not reasons:
        return {}
    places = {offset: number for number, offset in enumerate(records.column(place).to_pylist())}
    unknown = [offset for offset in reasons if offset not in places]
    if unknown:
        raise stop("EOS_TRANSFORM_RESULT.rejected", column=place, number=unknown[0])
    return {places[offset]: reason for offset, reason in reasons.items()}


def letters_of(chunk: Chunk, rejected: Mapping[int, str], cluster: str) -> pa.RecordBatch:
    """The rejected records as dead letters: key and value as they were, and headers that say why and where from.
    ``cluster``: the id of the source's, empty where it is not known."""
    records = chunk.rows.take(pa.array(sorted(rejected), pa.int64()))
    own = records.column("headers").to_pylist() if "headers" in records.schema.names else [None] * records.num_rows
    places = zip(*(records.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True)
    headers = [
        [*(mine or ()), *_why(reason, cluster, *place)]
        for mine, (_, reason), place in zip(own, sorted(rejected.items()), places, strict=True)
    ]
    columns = [records.column("key"), records.column("value"), pa.array(headers, ARROW_HEADERS.type)]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value", "headers"])


def _why(reason: str, cluster: str, topic: str, partition: int, offset: int) -> list[dict[str, object]]:
    place = {
        letter_headers.SOURCE_TOPIC: topic,
        letter_headers.SOURCE_PARTITION: str(partition),
        letter_headers.SOURCE_OFFSET: str(offset),
        letter_headers.SOURCE_CLUSTER: cluster,
    }
    texts = {letter_headers.EXCEPTION: REJECTED, letter_headers.MESSAGE: reason, **place}
    return [{"key": name, "value": text.encode()} for name, text in texts.items()]


def columns_of(names: list[str], by_column: bool) -> Columns:
    """``by_column``: whether the topic is that of the column, if there is one."""
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
    place: str = OFFSET,
) -> Transform:
    """The function, which is called once, with an empty batch, to see what it returns. Raises SchemaError, RowError."""
    rows = conformed(without_rejected(as_batch(function(empty)), place=place)[0])
    return transform_to(topic, function, name, rows, on_malformed)


def transform_to(
    topic: str | None, function: Function, name: str, rows: pa.RecordBatch, on_malformed: OnMalformed = "fail"
) -> Transform:
    """The function, as a transform to the topic, or to those of a column. ``rows``: what it returns. Raises
    SchemaError."""
    columns = columns_of(rows.schema.names, topic is None)
    if topic is None and not columns.topic:
        raise stop("EOS_SCHEMA_INVALID.topic", column="topic", where=" in the transform's result")
    return Transform(function, name, columns, on_malformed=on_malformed)


def conformed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The sink's columns, with their types. Raises SchemaError, RowError."""
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


def as_batch(result: Any) -> pa.RecordBatch:  # noqa: ANN401  # whatever the user returns
    """A function's result as one batch, each of whose columns is there once and can be filtered. Raises RowError,
    SchemaError."""
    batch = _one_batch(result)
    names = batch.schema.names
    if len(set(names)) < len(names):
        raise stop(
            "EOS_SCHEMA_INVALID.twice",
            column=next(name for name in names if names.count(name) > 1),
            where=" in the transform's result",
        )
    for place, field in enumerate(batch.schema):
        wanted = plain_type(field.type)
        if wanted != field.type:
            batch = batch.set_column(place, field.with_type(wanted), batch.column(place).cast(wanted))
    return batch


def _one_batch(result: Any) -> pa.RecordBatch:  # noqa: ANN401  # as above
    """Raises RowError."""
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
    """A column of a result as the sink's column of that name. Raises SchemaError."""
    wanted = TYPES[name]
    if column.type == wanted:
        return column
    lost = lost_field(column.type, wanted)
    if lost is not None:
        raise _unfit(name, column.type, f"it has no field '{lost}'")
    if not pa.types.is_null(column.type) and not _TAKEN[name](column.type):
        raise _unfit(name, column.type, "no value is made of another kind of values")
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


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def _is_text(type_: pa.DataType) -> bool:
    return _is_one_of(_TEXTS, type_)


def _is_text_or_bytes(type_: pa.DataType) -> bool:
    return _is_one_of((*_TEXTS, *_BYTES, pa.types.is_null), type_)


def _is_one_of(kinds: Iterable[Callable[[pa.DataType], bool]], type_: pa.DataType) -> bool:
    """Whether the type, or that of a dictionary's values, is of one of the kinds."""
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    return any(is_one(plain) for is_one in kinds)


def _is_list_of_headers(type_: pa.DataType) -> bool:
    """Of structs, or of what a map has; a list without a header may have no type for one."""
    if pa.types.is_map(type_):
        return _is_text_or_bytes(type_.key_type) and _is_text_or_bytes(type_.item_type)
    if not _is_one_of(_LISTS, type_):
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
