"""The columns of ``format("eos-kafka")``: as of Spark's built-in Kafka source, in its order."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_eos.errors import stop

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

RECORD_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)

#: `RECORD_SCHEMA` in Arrow's types. Spark refuses a batch whose schema differs from its own translation in anything.
ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)

#: The column that ``includeHeaders`` adds; null for a record without headers.
HEADERS = StructField("headers", ArrayType(_HEADER))
ARROW_HEADERS = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


def schema(include_headers: bool) -> StructType:
    """Return the columns of the source, as Spark's types."""
    return StructType([*RECORD_SCHEMA.fields, HEADERS]) if include_headers else RECORD_SCHEMA


def check_given(given: StructType, include_headers: bool) -> None:
    """Raise SchemaError unless the columns that Spark will ask for are the source's own.

    They are not where the user gave a ``.schema(…)``, which Spark hands to the tasks as it is.
    """
    own = schema(include_headers)
    if _columns(given) != _columns(own):
        raise stop("EOS_SCHEMA_INVALID.source", columns=_columns(own), given=_columns(given))


def _columns(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)


def arrow_schema(include_headers: bool) -> pa.Schema:
    """Return the columns of the source, as Arrow's types."""
    return ARROW_SCHEMA.append(ARROW_HEADERS) if include_headers else ARROW_SCHEMA
