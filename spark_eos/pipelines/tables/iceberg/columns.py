"""The columns of Iceberg tables as Arrow's: each field has its id, by which readers find it in a file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

#: Where pyarrow has the field id that it writes to files.
FIELD_ID = b"PARQUET:field_id"
_TYPES: dict[IcebergType, pa.DataType] = {
    BooleanType(): pa.bool_(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    FloatType(): pa.float32(),
    DoubleType(): pa.float64(),
    StringType(): pa.string(),
    BinaryType(): pa.binary(),
    DateType(): pa.date32(),
    TimestampType(): pa.timestamp("us"),
    TimestamptzType(): pa.timestamp("us", "UTC"),
}
_OF_ARROW = {arrow: iceberg for iceberg, arrow in _TYPES.items()}


class NoColumn(Exception):
    """The message names a column, and the type that files of this way of writing do not have."""


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the columns with their field ids. Raises NoColumn."""
    return pa.schema([_arrow_field(field, "") for field in schema.fields])


def _arrow_field(field: NestedField, above: str) -> pa.Field:
    return _with_id(field.name, _arrow_type(field.field_type, above + field.name), field.required, field.field_id)


def _with_id(name: str, type_: pa.DataType, required: bool, id_: int) -> pa.Field:
    return pa.field(name, type_, nullable=not required, metadata={FIELD_ID: str(id_)})


def _arrow_type(type_: IcebergType, name: str) -> pa.DataType:
    if isinstance(type_, StructType):
        return pa.struct([_arrow_field(field, f"{name}.") for field in type_.fields])
    if isinstance(type_, ListType):
        element = _arrow_type(type_.element_type, f"{name}.element")
        return pa.list_(_with_id("element", element, type_.element_required, type_.element_id))
    if isinstance(type_, MapType):
        key, value = _arrow_type(type_.key_type, f"{name}.key"), _arrow_type(type_.value_type, f"{name}.value")
        return pa.map_(
            _with_id("key", key, True, type_.key_id), _with_id("value", value, type_.value_required, type_.value_id)
        )
    if isinstance(type_, DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if type_ not in _TYPES:
        raise NoColumn(f"column {name} of type {type_}")
    return _TYPES[type_]


def iceberg_schema(schema: pa.Schema) -> Schema:
    """Return the columns of a table that is created for these, with new field ids.
    `spark_eos.pipelines.tables.values.check_columns` has checked the types."""
    ids = count(1)
    return Schema(*[_iceberg_field(field, ids) for field in schema])


def _iceberg_field(field: pa.Field, ids: Iterator[int]) -> NestedField:
    return NestedField(next(ids), field.name, iceberg_type(field.type, ids), required=not field.nullable)


def iceberg_type(type_: pa.DataType, ids: Iterator[int]) -> IcebergType:
    """Return the type of a column; ``ids``: of the fields in it."""
    if pa.types.is_struct(type_):
        return StructType(*[_iceberg_field(field, ids) for field in type_.fields])
    if pa.types.is_list(type_):
        return ListType(next(ids), iceberg_type(type_.value_type, ids), not type_.value_field.nullable)
    if pa.types.is_map(type_):
        key, value = next(ids), next(ids)
        required = not type_.item_field.nullable
        return MapType(key, iceberg_type(type_.key_type, ids), value, iceberg_type(type_.item_type, ids), required)
    if pa.types.is_decimal(type_):
        return DecimalType(type_.precision, type_.scale)
    if pa.types.is_int8(type_) or pa.types.is_int16(type_):
        return IntegerType()
    return _OF_ARROW[type_]
