"""Avro values as Confluent's own client in Python writes and reads them, whatever the schema of the whole value is."""

from __future__ import annotations

import json
import random
from decimal import Context, Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import strategies as st

from spark_eos.pipelines.registry.avro_values import AvroReader, AvroWriter
from spark_eos.pipelines.registry.schemas import Schema
from spark_eos.pipelines.registry.wire import prefix, split
from tests.support.runs.input_counts import COUNTS, inputs

CONTEXT = SerializationContext("t", MessageField.VALUE)
LONG, INT = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
#: Not empty: Confluent's client in Python refuses to read a value without bytes, which the one in Java reads.
BYTES = st.binary(min_size=1, max_size=300)
TEXT = st.text(max_size=300)
DECIMAL = st.integers(1 - 10**9, 10**9 - 1).map(lambda number: Decimal(number).scaleb(-2))
NUMBER = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FIXED = {"type": "fixed", "name": "F", "size": 3}
TRIPLE = st.binary(min_size=3, max_size=3)
#: Schemas of whole values, with values of each. All other types are as in fields: see `avro.test_values`.
WHOLE: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("long", LONG),
    ("string", TEXT),
    ("bytes", BYTES),
    ({"type": "bytes"}, BYTES),
    ({"type": "bytes", "doc": "raw"}, BYTES),
    ({"type": "bytes", "logicalType": "nobody-knows"}, BYTES),
    (FIXED, TRIPLE),
    ({"type": "fixed", "name": "D", "size": 6, "logicalType": "decimal", "precision": 9, "scale": 2}, DECIMAL),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, st.sampled_from("AB")),
    ({"type": "array", "items": "bytes"}, st.lists(BYTES, max_size=2)),
    (["null", "bytes"], st.none() | BYTES),
    (["bytes", "null"], st.none() | BYTES),
    (["null", "string"], st.none() | TEXT),
    (["null", "long"], st.none() | LONG),
    (["null", NUMBER], st.none() | DECIMAL),
    # as Debezium names a table of a server with a hyphen, and its columns
    (
        {
            "type": "record",
            "name": "Value-1",
            "namespace": "my-server.public.größe",
            "fields": [{"name": "größe-1", "type": "int"}, {"name": "1 b$", "type": FIXED | {"name": "Fü-1"}}],
        },
        st.fixed_dictionaries({"größe-1": INT, "1 b$": TRIPLE}),
    ),
]
EACH = pytest.mark.parametrize(("tree", "values"), WHOLE, ids=[json.dumps(tree) for tree, _ in WHOLE])


@cache
class Client:
    """Confluent's client, with a registry of its own in memory, and a schema."""

    def __init__(self, text: str) -> None:
        self.schema = Schema("AVRO", text)
        registry = SchemaRegistryClient.new_client({"url": "mock://"})
        self.write = AvroSerializer(registry, self.schema.text)
        self.read = AvroDeserializer(registry)


def decoded(schema: Schema, values: list[bytes | None], reader: Schema) -> pa.Array:
    """What we read."""
    column = pa.array(values, pa.binary()).drop_null()
    result = AvroReader(reader).of_writer(schema, ())(column, split(column).begin)
    assert result.bad == {}
    return result.rows


@EACH
@inputs(st.data(), each=50)
def test_values_are_read_as_the_client_wrote_them(tree, values, data):
    """A whole value of the type bytes is behind the schema's id as it is, without its length."""
    client, rows = Client(json.dumps(tree)), data.draw(st.lists(values, min_size=1))
    written = [client.write(row, CONTEXT) for row in rows]
    assert decoded(client.schema, written, client.schema).to_pylist() == [row for row in rows if row is not None]


@EACH
@inputs(st.data(), each=50)
def test_values_are_written_as_the_client_reads_them(tree, values, data):
    """And the client wrote the same bytes, so that a key of ours lies where its own does."""
    client = Client(json.dumps(tree))
    rows = [row for row in data.draw(st.lists(values, min_size=1)) if row is not None]
    theirs = [client.write(row, CONTEXT) for row in rows]
    column = pa.array(rows, AvroReader(client.schema).type)
    written = AvroWriter(client.schema).encode(column, prefix(1))
    assert written.bad == {}
    # fastavro writes some decimals with one byte more than they need
    assert written.values.to_pylist() == theirs or "decimal" in client.schema.text
    assert [client.read(value, CONTEXT) for value in written.values.to_pylist()] == rows


@pytest.mark.parametrize(
    ("tree", "reader", "value", "row"),
    [
        ("bytes", "bytes", b"", b""),
        ("bytes", "string", b"\x06abc", "\x06abc"),
        ("bytes", "string", b"", ""),
        ("bytes", ["null", "bytes"], b"\x06abc", b"\x06abc"),
        ("bytes", ["long", "bytes", "string"], b"\2", {"member0": None, "member1": b"\2", "member2": None}),
        ("bytes", NUMBER, b"\x01\x00", Decimal("2.56")),
        (NUMBER, NUMBER, b"\xff", Decimal("-0.01")),
        (NUMBER, "bytes", b"\xff", b"\xff"),
        ("string", "bytes", b"\x06abc", b"abc"),
        (["bytes"], "bytes", b"\0\x06abc", b"abc"),
        (["null", "bytes"], "bytes", b"\x02\x06abc", b"abc"),
    ],
)
def test_bytes_are_as_they_are_whatever_they_are_read_as(tree, reader, value, row):
    """By the writer's schema alone, as Java's deserializer has it; bytes in a union have a length as elsewhere."""
    writer, wanted = Schema("AVRO", json.dumps(tree)), Schema("AVRO", json.dumps(reader))
    assert decoded(writer, [prefix(1) + value, None, prefix(1) + value], wanted).to_pylist() == [row, row]


def test_bytes_that_cannot_be_read_as_the_reader_s_type_are_malformed_alone():
    """Invalid UTF-8, a decimal without a byte or with too many digits."""
    column = pa.array([b"\xff", b"", b"ab"])
    begin = split(pa.array([prefix(1)] * 3)).begin * 0
    raw, text, number = (Schema("AVRO", json.dumps(tree)) for tree in ("bytes", "string", NUMBER))
    result = AvroReader(text).of_writer(raw, ())(column, begin)
    assert result.rows.to_pylist() == [None, "", "ab"] and set(result.bad) == {0}
    result = AvroReader(number).of_writer(raw, ())(pa.array([b"\1", b"", b"\x7f" * 9]), begin)
    assert result.rows.to_pylist() == [Decimal("0.01"), None, None] and set(result.bad) == {1, 2}


def test_a_decimal_of_a_whole_value_is_its_bytes():
    """A row that it cannot hold is bad, and null stays null."""
    written = AvroWriter(Schema("AVRO", json.dumps(NUMBER))).encode(
        pa.array([Decimal("2.56"), None, Decimal("12345678.90")], pa.decimal128(12, 2)), prefix(7)
    )
    assert written.values.to_pylist() == [prefix(7) + b"\x01\x00", None, None] and set(written.bad) == {2}


def connect_decimal(scale: int, **type_: object) -> Any:
    """The field of a record as Kafka Connect writes a decimal, of 64 digits if nobody says otherwise."""
    decimal = {"type": "bytes", **type_, "scale": scale, "precision": 64, "logicalType": "decimal"}
    connect = {"connect.name": "org.apache.kafka.connect.data.Decimal", "connect.parameters": {"scale": str(scale)}}
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", {**decimal, **connect}]}]}


@COUNTS
@pytest.mark.parametrize("type_", [{}, {"type": "fixed", "name": "F", "size": 27}], ids=["bytes", "fixed"])
def test_decimals_of_more_digits_than_a_column_has_are_read_by_row(type_, count):
    """Each that has 38 digits at most is read and written; each other one is malformed, and no other row is."""
    tree, chance = connect_decimal(9, **type_), random.Random(48)
    client = Client(json.dumps(tree))
    edges = [sign * (10**power + more) for power in (0, 18, 38, 63) for more in (-1, 0) for sign in (1, -1)]
    bits = [chance.getrandbits(chance.randrange(1, 212)) * chance.choice((1, -1)) for _ in range(count)]
    numbers = [number for number in (*edges, *bits) if abs(number) < 10**64]
    rows = [{"a": Decimal(number).scaleb(-9, Context(prec=64))} for number in numbers]
    values = pa.array([client.write(row, CONTEXT) for row in rows], pa.binary())
    result = AvroReader(client.schema).of_writer(client.schema, ())(values, split(values).begin)
    short = [row if abs(number) < 10**38 else None for row, number in zip(rows, numbers, strict=True)]
    assert result.rows.to_pylist() == short
    assert set(result.bad) == {place for place, row in enumerate(short) if row is None}
    written = AvroWriter(client.schema).encode(result.rows, prefix(1)).values
    assert [None if value is None else client.read(value, CONTEXT) for value in written.to_pylist()] == short
