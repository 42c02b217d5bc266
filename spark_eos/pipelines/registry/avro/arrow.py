"""The Arrow types of Avro schemas. No I/O."""

from __future__ import annotations

import pyarrow as pa

from spark_eos.pipelines.registry.avro.schema import (
    NULL,
    Array,
    Decimal,
    Enum,
    Fixed,
    Map,
    Primitive,
    RecordType,
    Schema,
    Union,
)

#: The fields of a duration, which are unsigned numbers of 32 bits in a datum.
DURATION_PARTS = ("months", "days", "millis")
DURATION = pa.struct([pa.field(name, pa.int64(), nullable=False) for name in DURATION_PARTS])
INSTANT, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")

_PRIMITIVE = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": INSTANT,
    "timestamp-micros": INSTANT,
    "timestamp-nanos": pa.int64(),
    "local-timestamp-millis": LOCAL,
    "local-timestamp-micros": LOCAL,
    "local-timestamp-nanos": pa.int64(),
    "uuid": pa.string(),
    "duration": DURATION,
}


def arrow_type(schema: Schema) -> pa.DataType:
    """Return the type of a column with values of this schema; Spark has it, too.

    ========================================  =========================================
    boolean, int, long, float, double         bool, int32, int64, float32, float64
    bytes, fixed                              binary
    string, enum                              string
    record                                    struct
    array                                     list
    map                                       map of string
    null                                      null
    null with one other branch                that branch, nullable
    other unions                              struct of ``member0``, ``member1``, …: the branches other than null, of
                                              which one has a value; null for null. As in Spark's own Avro functions,
                                              but without their exceptions for int with long, and float with double
    a union of one branch                     that branch
    decimal, of bytes or fixed                decimal128, of at most 38 digits
    date                                      date32
    time-millis, time-micros                  time64[us]
    timestamp-millis, timestamp-micros        timestamp[us, UTC]
    local-timestamp-millis, …-micros          timestamp[us]
    timestamp-nanos, local-timestamp-nanos    int64, nanoseconds: Spark has no type for them
    uuid, of string or fixed                  string; of fixed, in lower case
    duration                                  struct of ``months``, ``days``, ``millis``, each int64
    ========================================  =========================================

    A field is nullable where its schema is null or a union with null.
    """
    match schema:
        case Primitive(type=type_, logical=None):
            return _PRIMITIVE[type_]
        case Primitive(logical=Decimal() as decimal) | Fixed(logical=Decimal() as decimal):
            return pa.decimal128(decimal.digits, decimal.scale)
        case Primitive(logical=str(logical)) | Fixed(logical=str(logical)):
            return _LOGICAL[logical]
        case Fixed():
            return pa.binary()
        case Enum():
            return pa.string()
        case Array(items=items):
            return pa.list_(_field("element", items))
        case Map(values=values):
            return pa.map_(pa.field("key", pa.string(), nullable=False), _field("value", values))
        case RecordType(fields=fields):
            return pa.struct([_field(one.name, one.schema) for one in fields])
        case Union():
            return _union_type(schema)
    raise AssertionError(schema)


def _union_type(union: Union) -> pa.DataType:
    members = union.members
    if not members:
        return pa.null()
    if len(members) == 1:
        return arrow_type(members[0])
    return pa.struct([pa.field(f"member{n}", arrow_type(one)) for n, one in enumerate(members)])


def is_nullable(schema: Schema) -> bool:
    """Tell whether values can be null."""
    return schema == NULL or (isinstance(schema, Union) and schema.null is not None)


def _field(name: str, schema: Schema) -> pa.Field:
    return pa.field(name, arrow_type(schema), nullable=is_nullable(schema))
