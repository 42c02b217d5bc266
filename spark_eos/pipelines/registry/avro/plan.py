"""Chooses the writers of a column, by its Arrow type and a schema. No I/O.

A column is accepted if writing loses nothing: integers of any width for int and long, where a number out of range makes
its row bad; shorter floats; decimals of the same or a smaller scale; any of Arrow's types of texts, bytes and lists.
Only times are truncated to the schema's unit, as by Spark's own Avro functions. Fields are found by name. A field that
the column does not have is written as its default; a column that the schema does not have is refused.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from spark_eos.errors import EosError, stop
from spark_eos.pipelines.registry.avro.arrow import DURATION_PARTS, arrow_type
from spark_eos.pipelines.registry.avro.defaults import default_bytes
from spark_eos.pipelines.registry.avro.schema import (
    MOST_DIGITS,
    Array,
    Decimal,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    RecordType,
    Schema,
    Union,
    described,
)
from spark_eos.pipelines.registry.avro.units import (
    DAY_S,
    INT_LEAST,
    INT_MOST,
    LONG_LEAST,
    LONG_MOST,
    UNITS,
    kind_and_unit,
)
from spark_eos.pipelines.registry.avro.writers import (
    BooleanWriter,
    DecimalWriter,
    DefaultWriter,
    DurationWriter,
    IntegerWriter,
    ListWriter,
    MapValueWriter,
    NullWriter,
    OptionalWriter,
    PieceWriter,
    RealWriter,
    StructWriter,
    SymbolWriter,
    UnionWriter,
    UuidWriter,
    ValueWriter,
)

_UNITS = {"s": 1, "ms": UNITS["millis"], "us": UNITS["micros"], "ns": UNITS["nanos"]}


def plan(schema: Schema, type_: pa.DataType, path: str) -> ValueWriter:
    """Return the writer of columns of this type. Raises SchemaError, with the path, if the type does not fit."""
    if types.is_dictionary(type_) and (_is_text(type_.value_type) or _is_binary(type_.value_type)):
        type_ = type_.value_type  # the writers of texts and bytes cast their columns
    match schema:
        case Union():
            return _union(schema, type_, path)
        case RecordType():
            return _record(schema, type_, path)
        case Enum(symbols=symbols) if _is_text(type_):
            return SymbolWriter(path, symbols)
        case Array(items=items) if (
            types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)
        ):
            return ListWriter(path, plan(items, type_.value_type, f"{path}[]"))
        case Map(values=values) if types.is_map(type_) and _is_text(type_.key_type):
            key = PieceWriter(f"{path}{{}}", pa.string())
            return MapValueWriter(path, key, plan(values, type_.item_type, f"{path}{{}}"))
        case Fixed():
            return _fixed(schema, type_, path)
        case Primitive():
            return _primitive(schema, type_, path)
    raise _unfit(schema, type_, path)


def _unfit(schema: Schema, type_: pa.DataType, path: str) -> EosError:
    return stop(
        "EOS_AVRO_COLUMN.type", path=path, given=str(type_), schema=described(schema), wanted=str(arrow_type(schema))
    )


def _is_text(type_: pa.DataType) -> bool:
    return any(bool(one(type_)) for one in (types.is_string, types.is_large_string, types.is_string_view))


def _is_binary(type_: pa.DataType) -> bool:
    some = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    return any(bool(one(type_)) for one in some)


def _union(schema: Union, type_: pa.DataType, path: str) -> ValueWriter:
    members, null = schema.members, schema.null
    if len(members) < 2:
        if null is not None and types.is_null(type_):
            return OptionalWriter(path, null, 0, None)
        if members:
            return OptionalWriter(path, null, schema.branches.index(members[0]), plan(members[0], type_, path))
    wanted = arrow_type(schema)
    if not types.is_struct(type_) or [one.name for one in type_] != [one.name for one in wanted]:
        raise _unfit(schema, type_, path)
    writers = (plan(member, one.type, f"{path}.{one.name}") for member, one in zip(members, type_, strict=True))
    numbers = (schema.branches.index(member) for member in members)
    return UnionWriter(path, null, tuple(zip(numbers, writers, strict=True)))


def _record(schema: RecordType, type_: pa.DataType, path: str) -> ValueWriter:
    if not types.is_struct(type_):
        raise _unfit(schema, type_, path)
    names = [one.name for one in type_]
    known = {field.name for field in schema.fields}
    for name in names:
        if name not in known:
            raise stop("EOS_AVRO_COLUMN.unknown", path=f"{path}.{name}")
        if names.count(name) > 1:
            raise stop("EOS_AVRO_COLUMN.twice", path=f"{path}.{name}")
    return StructWriter(path, tuple(_field(field, type_, names, f"{path}.{field.name}") for field in schema.fields))


def _field(field: Field, type_: pa.DataType, names: list[str], path: str) -> tuple[ValueWriter, int | None]:
    if field.name in names:
        number = names.index(field.name)
        return plan(field.schema, type_[number].type, path), number
    if field.default is None:
        raise stop("EOS_AVRO_COLUMN.missing", path=path)
    return DefaultWriter(default_bytes(field.schema, field.default, path)), None


def _fixed(schema: Fixed, type_: pa.DataType, path: str) -> ValueWriter:
    match schema.logical:
        case Decimal():
            return _decimal(schema, schema.logical, type_, schema.size, path)
        case "uuid" if _is_text(type_):
            return UuidWriter(path)
        case "duration" if types.is_struct(type_) and sorted(f.name for f in type_) == sorted(DURATION_PARTS):
            if all(types.is_integer(one.type) for one in type_):
                return DurationWriter(path, tuple(type_.get_field_index(name) for name in DURATION_PARTS))
        case None if _is_binary(type_):
            return PieceWriter(path, pa.binary(), schema.size)
    raise _unfit(schema, type_, path)


def _decimal(
    schema: Primitive | Fixed, decimal: Decimal, type_: pa.DataType, size: int | None, path: str
) -> DecimalWriter:
    if not types.is_decimal(type_):
        raise _unfit(schema, type_, path)
    # Zeros are added to a smaller scale: the longest number must still fit.
    if type_.scale > decimal.scale or type_.precision + decimal.scale - type_.scale > MOST_DIGITS:
        raise _unfit(schema, type_, path)
    return DecimalWriter(path, pa.decimal128(MOST_DIGITS, decimal.scale), decimal.digits, size)


def _primitive(schema: Primitive, type_: pa.DataType, path: str) -> ValueWriter:
    match schema.type:
        case "null" if types.is_null(type_):
            return NullWriter(path)
        case "boolean" if types.is_boolean(type_):
            return BooleanWriter(path)
        case "int" | "long":
            return _integer(schema, type_, path)
        case "float" if type_ in _FLOATS["float"]:
            return RealWriter(path, "<f4")
        case "double" if type_ in _FLOATS["double"]:
            return RealWriter(path, "<f8")
        case "bytes" if isinstance(schema.logical, Decimal):
            return _decimal(schema, schema.logical, type_, None, path)
        case "bytes" if _is_binary(type_):
            return PieceWriter(path, pa.binary())
        case "string" if _is_text(type_):
            return PieceWriter(path, pa.string(), uuid=schema.logical == "uuid")
    raise _unfit(schema, type_, path)


_SHORT = (pa.int8(), pa.int16(), pa.uint8(), pa.uint16())
#: The types that floats and doubles hold without loss.
_FLOATS = {
    "float": (pa.float16(), pa.float32(), *_SHORT),
    "double": (pa.float16(), pa.float32(), pa.float64(), pa.int32(), pa.uint32(), *_SHORT),
}


def _integer(schema: Primitive, type_: pa.DataType, path: str) -> ValueWriter:
    least, most = (INT_LEAST, INT_MOST) if schema.type == "int" else (LONG_LEAST, LONG_MOST)
    what = "an int of 32 bits" if schema.type == "int" else "a long of 64 bits"
    kind, unit = kind_and_unit(schema.logical)
    if types.is_integer(type_) and (not kind or unit == "nanos"):
        return IntegerWriter(path, least, most, what if type_.bit_width >= 32 else "")
    if kind == "date" and types.is_date32(type_):
        return IntegerWriter(path, least, most, "")
    if kind == "time" and types.is_time(type_):
        least, most, what = 0, DAY_S * UNITS[unit] - 1, "a time of day"
    elif not types.is_timestamp(type_) or kind != ("timestamp" if type_.tz else "local-timestamp"):
        raise _unfit(schema, type_, path)
    given, wanted = _UNITS[type_.unit], UNITS[unit]
    return IntegerWriter(path, least, most, what, max(1, wanted // given), max(1, given // wanted))
