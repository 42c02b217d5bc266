"""The sink's columns: names and types as in Spark's built-in format, and ``timestamp``."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_eos.errors import EosError, stop

_TEXT_OR_BYTES = "string or binary"
_HEADERS = "array<struct<key:string,value:binary>>"
#: By column, its type in Spark, as errors name it.
_TYPES = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "topic": "string",
    "partition": "int",
    "headers": _HEADERS,
    "timestamp": "timestamp",
}


@dataclass(frozen=True)
class Columns:
    """Which optional columns a query writes. ``value`` is always there."""

    #: The names of all columns.
    NAMES: ClassVar = tuple(_TYPES)
    #: Columns that are never fields of a value which is encoded from several columns.
    BESIDE_VALUE: ClassVar = tuple(name for name in NAMES if name != "value")

    key: bool
    topic: bool
    partition: bool
    headers: bool
    timestamp: bool


def check_columns(schema: StructType, topic_option: str | None) -> Columns:
    """Check names and types on the driver. Raises SchemaError."""
    names = {field.name for field in schema.fields}
    for field in schema.fields:
        if field.name not in _TYPES:
            raise _unknown(field.name)
        if not _fits(field.name, field.dataType):
            raise stop(
                "EOS_SCHEMA_INVALID.type",
                column=field.name,
                types=_TYPES[field.name],
                remedy=_remedy(field),
                type=field.dataType.simpleString(),
                where="",
            )
    if len(names) < len(schema.fields):
        twice = next(field.name for field in schema.fields if schema.names.count(field.name) > 1)
        raise stop("EOS_SCHEMA_INVALID.twice", column=twice, where="")
    if "value" not in names:
        raise stop("EOS_SCHEMA_INVALID.value", column="value", where="", why="")
    if "topic" not in names and topic_option is None:
        raise stop("EOS_SCHEMA_INVALID.topic", where="")
    return Columns(
        key="key" in names,
        topic="topic" in names and topic_option is None,
        partition="partition" in names,
        headers="headers" in names,
        timestamp="timestamp" in names,
    )


def _unknown(name: str) -> EosError:
    near = difflib.get_close_matches(name.lower(), Columns.NAMES, n=1)
    if near:
        return stop("EOS_SCHEMA_INVALID.unknown_near", column=name, nearest=near[0])
    return stop("EOS_SCHEMA_INVALID.unknown", column=name, columns=", ".join(Columns.NAMES), where="")


def _remedy(field: StructField) -> str:
    """Describe how to convert the column, if there is a single way."""
    if field.name in ("key", "value", "topic") and isinstance(field.dataType, (StructType, ArrayType, MapType)):
        return f"to_json({field.name}) AS {field.name}"
    if field.name in ("key", "value", "topic"):
        return f"cast({field.name} AS string) AS {field.name}"
    return "cast it"


def _fits(name: str, data_type: DataType) -> bool:
    if name in ("key", "value"):
        return isinstance(data_type, (StringType, BinaryType))
    if name == "headers":
        return _is_headers(data_type)
    wanted = {"topic": StringType, "partition": IntegerType, "timestamp": TimestampType}[name]
    return isinstance(data_type, wanted)


def _is_headers(data_type: DataType) -> bool:
    if not isinstance(data_type, ArrayType) or not isinstance(data_type.elementType, StructType):
        return False
    fields = {field.name: type(field.dataType) for field in data_type.elementType.fields}
    return fields == {"key": StringType, "value": BinaryType}
