"""Bytes of Confluent's own serializers, read by columns; bytes of columns, read by Confluent's deserializers."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.serde import SchemaId
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from spark_eos.pipelines.registry.decoding import reading
from spark_eos.pipelines.registry.encoding import schema_given, writing
from spark_eos.pipelines.registry.protobuf_files import message_named
from spark_eos.pipelines.registry.schemas import Schema
from spark_eos.pipelines.registry.settings import registry_settings
from tests.support.judges import golden

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "acme",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"], "default": None},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "tags", "type": {"type": "map", "values": "int"}},
            {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {"type": "record", "name": "Line", "fields": [{"name": "what", "type": "string"}]},
                },
            },
        ],
    }
)
PROTOBUF = """syntax = "proto3"; package acme;
message Other { string x = 1; }
message Order { int64 id = 1; string name = 2; repeated Line lines = 3; message Line { string what = 1; } }
"""
JSON = json.dumps(
    {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "lines": {"type": "array", "items": {"type": "string"}}},
        "required": ["id"],
    }
)
AVRO_ROWS = [
    {
        "id": number,
        "name": None if number % 2 else "ä" * number,
        "price": Decimal(number) / 4,
        "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=number),
        "tags": {"a": number},
        "color": "RED" if number % 2 else "GREEN",
        "lines": [{"what": str(number)}] * number,
    }
    for number in range(4)
]
SIMPLE_ROWS = [{"id": number, "name": str(number), "lines": [{"what": "x"}] * number} for number in range(4)]
JSON_ROWS = [{"id": number, "lines": ["x"] * number} for number in range(4)]


class Confluent:
    """Serializers and deserializers of Confluent, by format."""

    #: The official runtime's class of the message.
    order = GetMessageClass(message_named(Schema("PROTOBUF", PROTOBUF), "acme.Order"))

    def __init__(self, url: str, subject: str) -> None:
        self._client = SchemaRegistryClient({"url": url})
        self._context = SerializationContext(subject.removesuffix("-value"), MessageField.VALUE)

    def write(self, kind: str, row: dict) -> bytes:
        if kind == "PROTOBUF":
            serialize = ProtobufSerializer(self.order, self._client, {"use.deprecated.format": False})
            return serialize(self.order(**row), self._context)
        if kind == "AVRO":
            return AvroSerializer(self._client, AVRO)(row, self._context)
        return JSONSerializer(JSON, self._client)(row, self._context)

    def read(self, kind: str, value: bytes | None) -> object:
        if kind == "PROTOBUF":  # its deserializer needs a form of schemas that only Confluent's registry has
            named = SchemaId("PROTOBUF")
            found = self.order.FromString(named.from_bytes(io.BytesIO(value)).read())
            assert named.message_indexes == [1]
            return {"id": found.id, "name": found.name, "lines": [{"what": line.what} for line in found.lines]}
        if kind == "AVRO":
            return AvroDeserializer(self._client)(value, self._context)
        return JSONDeserializer(None, schema_registry_client=self._client)(value, self._context)


CASES = [("AVRO", AVRO, AVRO_ROWS), ("PROTOBUF", PROTOBUF, SIMPLE_ROWS), ("JSON", JSON, JSON_ROWS)]


@pytest.mark.parametrize(("kind", "schema", "rows"), CASES)
def test_each_side_reads_the_values_of_the_other(registry, subject, kind, schema, rows):
    """Confluent's deserializers those of columns, and columns those of Confluent's serializers, Protobuf's second
    message by its index. Null rows are tombstones; the schema is registered once."""
    settings = registry_settings(registry.url)
    message = "acme.Order" if kind == "PROTOBUF" else None
    given = schema_given(settings, kind, schema)
    encoding = writing(settings, given, subject=subject, message=message)
    decoding = reading(settings, subject, message=message)
    listed = [
        {name: list(value.items()) if isinstance(value, dict) else value for name, value in row.items()} for row in rows
    ]
    found = encoding.encode(pa.array([*listed, None], decoding.type))
    assert found.bad == {}
    written = found.values.to_pylist()
    assert written[-1] is None
    confluent = Confluent(registry.url, subject)
    assert [confluent.read(kind, value) for value in written[:-1]] == rows
    assert registry.call("GET", f"subjects/{subject}/versions") == [1]
    assert writing(settings, None, subject=subject, message=message).registered.id == encoding.registered.id
    values = [confluent.write(kind, row) for row in rows]
    if kind == "AVRO":
        assert values == written[:-1]
    read = decoding.decode(pa.array([*values, None, *values], pa.binary()))
    assert read.bad == {}
    assert read.rows.to_pylist(maps_as_pydicts="strict") == [*rows, None, *rows]


@pytest.mark.chaos
def test_serializers_of_this_day_write_the_values_of_the_file():
    """Those by which other tests judge what is read (`tests.support.judges.golden`); in Java, too."""
    assert golden.made()["values"] == json.loads(golden.FILE.read_text(encoding="utf-8"))["values"]
