"""Converts rows to the types of a table's columns, and rejects rows with values that these cannot hold.

Nobody checks a data file when it is committed: a value that overflows is read back as another one, and invalid UTF-8,
or null in a column without nulls, breaks the readers of the whole table. So values are only converted by casts that
check each value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from spark_eos.errors import stop
from spark_eos.pipelines.arrow_fields import is_bytes, is_list, is_text
from spark_eos.pipelines.tables.keys import DAYS, MICROSECONDS, Key, without_key
from spark_eos.pipelines.tables.partitions import NoPartition, directory_of, is_partition_type, text_of


@dataclass(frozen=True)
class Conformed:
    """A batch with a table's columns. ``rows``: the rows that the table can hold, in order. ``bad``: index in the batch
    → why the table cannot hold the row."""

    rows: pa.RecordBatch
    bad: Mapping[int, str]


#: Digits of a table's decimals.
_MOST_DIGITS = 38


class _Unfit(Exception):
    """The column cannot hold one of these values."""


def check_columns(schema: pa.Schema, partition_by: Sequence[str] = ()) -> None:
    """Raise SchemaError for columns that a table cannot have."""
    _check_names_of(list(schema))
    for column in schema:
        unsupported = _unsupported(column.type)
        if unsupported is not None:
            raise stop("EOS_TABLE_COLUMNS.unsupported", column=column.name, type=unsupported)
    for name in partition_by:
        if list(partition_by).count(name) > 1:
            raise stop("EOS_TABLE_COLUMNS.twice", column=name)
        if name not in schema.names:
            raise stop("EOS_TABLE_COLUMNS.partition", column=name, why=f"its columns are {', '.join(schema.names)}")
        if not is_partition_type(schema.field(name).type):
            raise stop("EOS_TABLE_COLUMNS.partition", column=name, why=f"the column is {schema.field(name).type}")
    if set(schema.names) <= set(partition_by):
        raise stop(
            "EOS_TABLE_COLUMNS.partition",
            column=", ".join(schema.names),
            why="these are all of its columns, and its files need at least one more",
        )


def _check_names_of(fields: Sequence[pa.Field], above: str = "") -> None:
    """Raise SchemaError for fields with the same name, in the table or in a struct within it: some readers find one of
    them only, and some none. A name also ends with NUL where Arrow hands a schema to other libraries."""
    names = [field.name.lower() for field in fields]
    for field in fields:
        if "\0" in field.name:
            raise stop(
                "EOS_TABLE_COLUMNS.name", column=above + field.name, why="readers end a name at the character NUL"
            )
        if names.count(field.name.lower()) > 1:
            raise stop("EOS_TABLE_COLUMNS.twice", column=above + field.name)
        within = [field.type.field(index) for index in range(field.type.num_fields)]
        _check_names_of(within, f"{above}{field.name}.")


def _unsupported(type_: pa.DataType) -> pa.DataType | None:
    """Return the type, or a type within it, that tables do not support; None if all are supported."""
    children = [type_.field(index).type for index in range(type_.num_fields)]
    if types.is_struct(type_) and not children:
        return type_
    if types.is_list(type_) or types.is_struct(type_) or types.is_map(type_):
        return next((inner for inner in map(_unsupported, children) if inner is not None), None)
    plain = (
        types.is_boolean(type_)
        or types.is_signed_integer(type_)
        or type_ in (pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32())
        or type_ in (pa.timestamp("us"), pa.timestamp("us", "UTC"))
        or (types.is_decimal128(type_) and type_.scale >= 0)
    )
    return None if plain else type_


def table_schema(given: pa.Schema) -> pa.Schema:
    """Return the columns of a table that is created for rows with these: `conformed` converts them, and all may be
    null.

    A type for which tables have none stays as it is, and `check_columns` refuses it.
    """
    return pa.schema([pa.field(column.name, _table_type(column.type)) for column in given])


def _table_type(given: pa.DataType) -> pa.DataType:
    """Return the type of a table's column that holds all values of the type, as far as there is one."""
    given = _plain(given)
    if types.is_struct(given):
        return pa.struct([pa.field(field.name, _table_type(field.type)) for field in given.fields])
    if is_list(given):
        return pa.list_(pa.field("element", _table_type(given.value_type)))
    if types.is_map(given):
        return pa.map_(_table_type(given.key_type), _table_type(given.item_type))
    return next((wanted(given) for is_one, wanted in _TABLE_TYPES if is_one(given)), given)


def conformed(
    batch: pa.RecordBatch, schema: pa.Schema, partition_by: Sequence[str] = (), keys: Sequence[Key] = ()
) -> Conformed:
    """Convert the batch to the table's columns and types; a column that it lacks is null. ``partition_by``, ``keys``:
    see `spark_eos.pipelines.tables.target.TableColumns`. Raises SchemaError for columns that cannot be converted for
    any value."""
    columns: list[pa.Array] = []
    bad: dict[int, str] = {}
    _check_names(batch.schema.names, schema.names)
    for column in schema:
        given = _given(batch, column)
        _check_types(given.type, column.type, column.name)
        converted, reasons = _converted(given, column)
        for row, reason in [*reasons.items(), *_unfit_partitions(converted, column, partition_by).items()]:
            bad.setdefault(row, f"column {column.name}: {reason}")
        columns.append(converted)
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    for row, reason in without_key(rows, keys).items():
        bad.setdefault(row, reason)
    if bad:
        rows = rows.take(pa.array(np.delete(np.arange(rows.num_rows), sorted(bad))))
    return Conformed(rows, bad)


def _check_names(given: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise SchemaError for columns that the table does not have, and for duplicates. Case matters: a table with ``id``
    reads a file's column ``ID`` as null."""
    for name in given:
        if name not in wanted:
            raise stop("EOS_TABLE_COLUMNS.unknown", column=name, columns=", ".join(wanted))
        if given.count(name) > 1:
            raise stop("EOS_TABLE_COLUMNS.twice", column=name)


def _given(batch: pa.RecordBatch, column: pa.Field) -> pa.Array:
    index = batch.schema.get_field_index(column.name)
    if index >= 0:
        return batch.column(index)
    if not column.nullable:
        raise stop("EOS_TABLE_COLUMNS.missing", column=column.name)
    return pa.nulls(batch.num_rows, column.type)


# Types


def _check_types(given: pa.DataType, wanted: pa.DataType, column: str) -> None:
    """Raise SchemaError unless there is a cast between the types that checks each value."""
    given = _plain(given)
    if types.is_null(given):
        return
    if types.is_struct(wanted) and types.is_struct(given):
        names = [field.name for field in given.fields]
        _check_names([f"{column}.{name}" for name in names], [f"{column}.{field.name}" for field in wanted.fields])
        for field in wanted.fields:
            if field.name in names:
                _check_types(given.field(field.name).type, field.type, f"{column}.{field.name}")
            elif not field.nullable:
                raise stop("EOS_TABLE_COLUMNS.missing", column=f"{column}.{field.name}")
    elif types.is_list(wanted) and is_list(given):
        _check_types(given.value_type, wanted.value_type, f"{column}.element")
    elif types.is_map(wanted) and types.is_map(given):
        _check_types(given.key_type, wanted.key_type, f"{column}.key")
        _check_types(given.item_type, wanted.item_type, f"{column}.value")
    elif given != wanted and not any(is_one(given) and fits(given, wanted) for is_one, fits in _CASTS):
        raise stop("EOS_TABLE_COLUMNS.type", column=column, type=given, wanted=wanted)


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return the type without extension types and dictionaries."""
    if isinstance(type_, pa.BaseExtensionType):
        return _plain(type_.storage_type)
    return _plain(type_.value_type) if types.is_dictionary(type_) else type_


#: The casts by which Arrow checks each value: from a type, to a table's type.
_CASTS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, pa.DataType], bool]]] = (
    (is_text, lambda given, wanted: types.is_string(wanted) or types.is_binary(wanted)),
    (is_bytes, lambda given, wanted: types.is_string(wanted) or types.is_binary(wanted)),
    (types.is_fixed_size_binary, lambda given, wanted: types.is_binary(wanted)),
    (types.is_integer, lambda given, wanted: types.is_integer(wanted) or types.is_floating(wanted)),
    (
        types.is_integer,
        lambda given, wanted: types.is_decimal(wanted) and _digits(given) <= wanted.precision - wanted.scale,
    ),
    (types.is_floating, lambda given, wanted: types.is_floating(wanted) and given.bit_width <= wanted.bit_width),
    (types.is_decimal, lambda given, wanted: types.is_decimal(wanted)),
    (types.is_decimal, lambda given, wanted: types.is_integer(wanted) and given.scale == 0),
    (types.is_timestamp, lambda given, wanted: types.is_timestamp(wanted) and bool(given.tz) == bool(wanted.tz)),
)


#: The type of a new table's column, by the given type. Timestamps in tables are in microseconds.
_TABLE_TYPES: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType]]] = (
    (is_text, lambda given: pa.string()),
    (is_bytes, lambda given: pa.binary()),
    (types.is_fixed_size_binary, lambda given: pa.binary()),
    (types.is_uint8, lambda given: pa.int16()),
    (types.is_uint16, lambda given: pa.int32()),
    (types.is_uint32, lambda given: pa.int64()),
    (types.is_uint64, lambda given: pa.decimal128(20, 0)),
    (types.is_float16, lambda given: pa.float32()),
    (types.is_timestamp, lambda given: pa.timestamp("us", "UTC" if given.tz else None)),
    (
        lambda given: types.is_decimal(given) and given.precision <= _MOST_DIGITS,
        lambda given: pa.decimal128(given.precision, given.scale),
    ),
)


def _digits(type_: pa.DataType) -> int:
    """Return the most digits of an integer of this type."""
    return len(str(1 << type_.bit_width))


# Values


def _converted(given: pa.Array, column: pa.Field) -> tuple[pa.Array, dict[int, str]]:
    """Return the converted column, with null for values that it cannot hold, and the reasons for these by index."""
    pieces: list[pa.Array] = []
    reasons: dict[int, str] = {}
    waiting = [(0, len(given))]
    while waiting:
        begin, end = waiting.pop()
        try:
            pieces.append(_cast(given.slice(begin, end - begin), column))
        except _Unfit as error:
            if end - begin > 1:  # find the value by bisection
                middle = (begin + end) // 2
                waiting += [(middle, end), (begin, middle)]
                continue
            reasons[begin] = str(error)
            pieces.append(pa.nulls(1, column.type))
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces), reasons


def _cast(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return the values with the field's type. Raises _Unfit."""
    array = _stored(array)
    result = _as_type(array, field.type)
    if not field.nullable and result.null_count:
        raise _Unfit("null, where the table has no nulls")
    return result


def _stored(array: pa.Array) -> pa.Array:
    """Return the array without extension types and dictionaries."""
    if isinstance(array, pa.ExtensionArray):
        return _stored(array.storage)
    return _stored(array.dictionary_decode()) if types.is_dictionary(array.type) else array


def _as_type(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if types.is_null(array.type):
        array = pa.nulls(len(array), wanted)
    if types.is_struct(wanted):
        return _struct(array, wanted)
    if types.is_list(wanted):
        return _list(array, wanted)
    if types.is_map(wanted):
        return _map(array, wanted)
    try:
        result = array if array.type == wanted else array.cast(wanted)
        if types.is_string(wanted) or types.is_decimal(wanted):
            result.validate(full=True)
    except pa.ArrowInvalid:
        if types.is_string(wanted):
            raise _Unfit("bytes that are not UTF-8") from None
        raise _Unfit(f"a value of {array.type} that {wanted} cannot hold") from None
    if types.is_temporal(wanted):
        _check_year(result)
    return result


def _check_year(array: pa.Array) -> None:
    """Raise _Unfit for a date or timestamp that readers cannot hold: some of them end with an error for the whole
    table."""
    is_date = types.is_date(array.type)
    first, last = DAYS if is_date else MICROSECONDS
    ends = pc.min_max(array.view(pa.int32() if is_date else pa.int64()))
    if len(array) > array.null_count and not first <= ends["min"].as_py() <= ends["max"].as_py() <= last:
        raise _Unfit(f"a {'date' if is_date else 'timestamp'} whose year is not between 1 and 9999")


def _struct(array: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    given = dict(zip((field.name for field in array.type.fields), array.flatten(), strict=True))
    columns = []
    for field in wanted.fields:
        column = _as_type(_stored(given.get(field.name, pa.nulls(len(array)))), field.type)
        if not field.nullable and column.null_count > array.null_count:  # the fields of null structs are null
            raise _Unfit(f"null in its field {field.name}, where the table has no nulls")
        columns.append(column if field.nullable or not column.null_count else _without_nulls(column))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(wanted.fields), mask=mask)


def _without_nulls(array: pa.Array) -> pa.Array:
    """Return the array with any values for its nulls, all of which are in null structs: files may have none, even
    there."""
    type_ = array.type
    if types.is_struct(type_):
        fields = [array.field(index) for index in range(type_.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(type_.fields))
    if types.is_list(type_):
        return pa.ListArray.from_arrays(array.offsets, array.values, type_)
    if types.is_map(type_):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items).cast(type_)
    return pa.Array.from_buffers(type_, len(array), [None, *array.buffers()[1:]], 0, array.offset)


def _list(array: pa.Array, wanted: pa.ListType) -> pa.ListArray:
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    return pa.ListArray.from_arrays(_offsets(array, lengths), _cast(array.flatten(), wanted.value_field), type=wanted)


def _map(array: pa.MapArray, wanted: pa.MapType) -> pa.MapArray:
    array = array.take(pa.array(np.arange(len(array))))  # removes entries that belong to no map
    keys, items = _cast(array.keys, wanted.key_field), _cast(array.items, wanted.item_field)
    lengths = np.diff(array.offsets.to_numpy())
    return pa.MapArray.from_arrays(_offsets(array, lengths), keys, items).cast(wanted)


def _offsets(array: pa.Array, lengths: np.ndarray) -> pa.Array:
    """Return the offsets of a list array, with null where the list is null."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    nulls = np.append(array.is_null().to_numpy(zero_copy_only=False), False)
    return pa.array(offsets, pa.int32(), mask=nulls)


def _unfit_partitions(array: pa.Array, column: pa.Field, partition_by: Sequence[str]) -> dict[int, str]:
    """Return index → why values of a partition column cannot be partition values."""
    if column.name not in partition_by:
        return {}
    encoded = array.dictionary_encode()
    values = encoded.dictionary.cast(pa.int64()) if types.is_timestamp(column.type) else encoded.dictionary
    reasons = [_unfit_partition(value, column) for value in values]
    if not any(reasons):
        return {}
    codes = encoded.indices.to_pylist()
    return {row: reasons[code] for row, code in enumerate(codes) if code is not None and reasons[code]}


def _unfit_partition(value: pa.Scalar, column: pa.Field) -> str:
    try:
        text = text_of(value.as_py(), column.type)
        directory_of([column.name], (text,))
    except NoPartition as error:
        return f"no value of a partition: {error}"
    return "" if text is not None or column.nullable else "an empty string, which is null in a partition column"
