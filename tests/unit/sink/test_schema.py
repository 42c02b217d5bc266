"""The sink's columns are checked before anything runs."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_eos.sink.schema import Columns, check_columns
from tests.support.judges.conditions import raises


def headers(*fields: tuple[str, DataType]) -> ArrayType:
    return ArrayType(StructType([StructField(*field) for field in fields]))


ALL = {
    "key": StringType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "headers": headers(("key", StringType()), ("value", BinaryType())),
    "timestamp": TimestampType(),
}


def schema(**columns) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("columns", "topic", "found"),
    [
        (ALL, None, Columns(True, True, True, True, True)),
        (dict(reversed(ALL.items())), None, Columns(True, True, True, True, True)),
        (ALL, "t", Columns(True, False, True, True, True)),  # the option goes before the column
        ({"value": StringType()}, "t", Columns(False, False, False, False, False)),
        ({"key": BinaryType(), "value": BinaryType()}, "t", Columns(True, False, False, False, False)),
        ({"key": StringType(), "value": StringType()}, "t", Columns(True, False, False, False, False)),
    ],
)
def test_columns_that_are_taken(columns, topic, found):
    """In any order; names and types are those of the built-in format, and timestamp."""
    assert check_columns(schema(**columns), topic) == found


@pytest.mark.parametrize(
    ("columns", "topic", "named", "hint"),
    [
        ({"key": StringType()}, "t", "'value'", ""),
        ({"value": StringType()}, None, "topic", '.option("topic"'),
        ({"value": StringType()}, None, "topic", "AS topic"),
        (ALL | {"carrier": StringType()}, "t", "'carrier'", "to_json"),  # it would be dropped without a word
        ({"VALUE": StringType()}, "t", "", "Did you mean 'value'? Rename it: VALUE AS value."),
        ({"header": StringType()}, "t", "", "Did you mean 'headers'? Rename it: header AS headers."),
        ({"value": LongType()}, "t", "'value' is bigint", ": cast(value AS string) AS value."),
        ({"value": StructType([StructField("a", LongType())])}, "t", "'value'", ": to_json(value) AS value."),
        ({"key": ArrayType(StringType()), "value": StringType()}, "t", "'key'", ": to_json(key) AS key."),
        ({"partition": LongType(), "value": StringType()}, "t", "'partition'", ": cast it."),
        (ALL | {"key": IntegerType()}, None, "'key' is int.", "Make it "),
        (ALL | {"value": StructType()}, None, "'value' is struct<>.", "Make it "),
        (ALL | {"topic": BinaryType()}, None, "'topic' is binary.", "Make it "),
        (ALL | {"partition": StringType()}, None, "'partition' is string.", "Make it "),
        (ALL | {"timestamp": LongType()}, None, "'timestamp' is bigint.", "Make it "),
        (ALL | {"timestamp": TimestampNTZType()}, None, "'timestamp' is timestamp_ntz.", "Make it "),
        (ALL | {"headers": MapType(StringType(), BinaryType())}, None, "'headers' is map<string,binary>.", "Make it "),
        (ALL | {"headers": ArrayType(StringType())}, None, "'headers' is array<string>.", "Make it "),
        (ALL | {"headers": headers(("key", StringType()))}, None, "array<struct<key:string>>.", "Make it "),
        (ALL | {"headers": headers(("key", StringType()), ("value", StringType()))}, None, "value:string>", "Make it "),
    ],
)
def test_columns_that_are_refused_are_named_with_a_way_out(columns, topic, named, hint):
    """Names are case-sensitive here, as in the built-in format."""
    with raises("EOS_SCHEMA_INVALID") as caught:
        check_columns(schema(**columns), topic)
    assert named in caught.value.message and hint in caught.value.hint


def test_a_column_that_is_there_twice():
    """Nobody could say which one is meant."""
    with raises("EOS_SCHEMA_INVALID", "'value'"):
        check_columns(StructType([StructField("value", StringType()), StructField("value", StringType())]), "t")
