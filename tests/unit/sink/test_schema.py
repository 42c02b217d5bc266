"""The sink's columns are checked before anything runs."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_eos.errors import SchemaError
from spark_eos.sink.schema import Columns, check_columns

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
ALL = {
    "key": StringType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "headers": HEADERS,
    "timestamp": TimestampType(),
}


def schema(**columns) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def refused(columns: dict, topic: str | None = "t") -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        check_columns(schema(**columns), topic)
    return caught.value


def test_all_columns_in_any_order():
    """Names and types are those of the built-in format, and timestamp."""
    assert check_columns(schema(**ALL), None) == Columns(True, True, True, True, True)
    assert check_columns(schema(**dict(reversed(ALL.items()))), None) == Columns(True, True, True, True, True)


def test_value_alone_will_do_with_the_option():
    """The other columns are not written."""
    assert check_columns(schema(value=StringType()), "t") == Columns(False, False, False, False, False)


def test_the_option_goes_before_the_column():
    """The column is then not looked at, as in the built-in format."""
    assert check_columns(schema(**ALL), "t") == Columns(True, False, True, True, True)


@pytest.mark.parametrize("kind", [StringType(), BinaryType()])
def test_key_and_value_are_text_or_bytes(kind):
    """Either of them."""
    assert check_columns(schema(key=kind, value=kind), "t").key


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("key", IntegerType()),
        ("value", LongType()),
        ("value", StructType()),
        ("topic", BinaryType()),
        ("partition", LongType()),
        ("partition", StringType()),
        ("timestamp", LongType()),
        ("timestamp", TimestampNTZType()),
        ("headers", MapType(StringType(), BinaryType())),
        ("headers", ArrayType(StringType())),
        ("headers", ArrayType(StructType([StructField("key", StringType())]))),
        ("headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", StringType())]))),
    ],
)
def test_wrong_types_are_named(column, kind):
    """With the column, what it is, and what it must be."""
    error = refused(ALL | {column: kind}, topic=None)
    assert error.condition == "EOS_SCHEMA_INVALID"
    assert f"'{column}' is {kind.simpleString()}" in error.message
    assert "Make it " in error.hint


def test_a_column_that_has_no_place():
    """It would be dropped without a word."""
    error = refused(ALL | {"carrier": StringType()})
    assert error.condition == "EOS_SCHEMA_INVALID"
    assert "'carrier'" in error.message
    assert "to_json" in error.hint


@pytest.mark.parametrize(
    ("name", "meant"), [("Value", "value"), ("VALUE", "value"), ("keys", "key"), ("header", "headers")]
)
def test_a_misspelt_column_is_told_with_the_one_meant(name, meant):
    """Names are case-sensitive here, as in the built-in format."""
    assert refused({name: StringType()}).hint == f"Did you mean '{meant}'? Rename it: {name} AS {meant}."


@pytest.mark.parametrize(
    ("column", "kind", "remedy"),
    [
        ("value", LongType(), "cast(value AS string) AS value"),
        ("value", StructType([StructField("a", LongType())]), "to_json(value) AS value"),
        ("key", ArrayType(StringType()), "to_json(key) AS key"),
        ("partition", LongType(), "cast it"),
    ],
)
def test_a_wrong_type_is_told_with_the_way_to_a_right_one(column, kind, remedy):
    """Where there is one."""
    assert refused({"value": StringType()} | {column: kind}).hint.endswith(f": {remedy}.")


def test_a_column_that_is_there_twice():
    """Nobody could say which one is meant."""
    with pytest.raises(SchemaError, match="'value'") as caught:
        check_columns(StructType([StructField("value", StringType()), StructField("value", StringType())]), "t")
    assert caught.value.condition == "EOS_SCHEMA_INVALID"


def test_no_value():
    """It is the one column that has to be."""
    error = refused({"key": StringType()})
    assert error.condition == "EOS_SCHEMA_INVALID"
    assert "'value'" in error.message


def test_neither_topic_column_nor_option():
    """With both remedies."""
    error = refused({"value": StringType()}, topic=None)
    assert error.condition == "EOS_SCHEMA_INVALID"
    assert '.option("topic"' in error.hint
    assert "AS topic" in error.hint
