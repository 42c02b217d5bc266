"""Values as other programs' serializers write them, in a file: by confluent-kafka's in Python, and by some in Java.

``python -m tests.support.judges.golden`` writes the file anew, with an empty registry of its own. It needs a JDK,
and Maven Central the first time. Look at the difference before it is committed.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import subprocess
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from spark_eos.pipelines.registry.protobuf_files import message_named
from spark_eos.pipelines.registry.schemas import Kind, Schema
from spark_eos.tools.devcluster.jars import JarSet, resolve
from spark_eos.tools.devcluster.java import find_java
from tests.support.judges.avro import record
from tests.support.servers.registry_front import front, guid_of
from tests.support.servers.schema_registry import SchemaRegistry

FILE = Path(__file__).with_name("golden.json")
_WRITER = Path(__file__).with_name("GoldenWriter.java")
_APICURIO = "2.6.13.Final"
_JARS = JarSet(
    f"apicurio-serdes-{_APICURIO}",
    (
        f"io.apicurio:apicurio-registry-serdes-avro-serde:{_APICURIO}",
        f"io.apicurio:apicurio-registry-serdes-jsonschema-serde:{_APICURIO}",
    ),
    plain=("org.slf4j:slf4j-nop:2.0.6",),
)

_AVRO = record(
    ("id", "long"),
    ("seats", "int"),
    ("late", "boolean"),
    ("load", "float"),
    ("distance", "double"),
    ("name", ["null", "string"], {"default": None}),
    ("raw", "bytes"),
    ("crc", {"type": "fixed", "name": "Crc", "size": 4}),
    ("class", {"type": "enum", "name": "Class", "symbols": ["FIRST", "SECOND"]}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("gate_closes", {"type": "int", "logicalType": "time-millis"}),
    ("departs", {"type": "long", "logicalType": "timestamp-millis"}),
    ("lands", {"type": "long", "logicalType": "timestamp-micros"}),
    ("trip", {"type": "string", "logicalType": "uuid"}),
    ("tags", {"type": "map", "values": "int"}),
    ("stops", {"type": "array", "items": record(("airport", "string"), ("minutes", ["int", "null"]), name="Stop")}),
    name="Flight",
    namespace="acme",
)
_PROTOBUF = """syntax = "proto3"; package acme;
message Other { string x = 1; }
message Flight {
  int64 id = 1; sint32 delay = 2; fixed64 serial = 3; bool late = 4; float load = 5; double distance = 6;
  string name = 7; bytes raw = 8; Class class = 9; repeated int32 seats = 10; repeated Stop stops = 11;
  map<string, int32> tags = 12; optional string note = 13;
  enum Class { FIRST = 0; SECOND = 1; }
  message Stop { string airport = 1; int32 minutes = 2; }
}
"""
_JSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "late": {"type": "boolean"},
        "distance": {"type": "number"},
        "name": {"type": "string"},
        "seats": {"type": "array", "items": {"type": "integer"}},
        "stop": {"type": "object", "properties": {"airport": {"type": "string"}}},
        "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "required": ["id"],
}


def _flight(number: int) -> dict[str, Any]:
    """Of Avro: the least, the greatest and usual values."""
    at = dt.datetime(2026, 3, 29, 0, 59, 59, 987_000, tzinfo=dt.UTC)
    return {
        "id": (0, -(2**63), 2**63 - 1, 4711)[number],
        "seats": (0, -(2**31), 2**31 - 1, 64)[number],
        "late": bool(number % 2),
        "load": (0.0, -0.5, 2.0**100, 0.75)[number],
        "distance": (0.0, -0.1, 1.7e308, 1234.5)[number],
        "name": (None, "", "Zürich → 東京 🛫", "x" * 300)[number],
        "raw": (b"", b"\x00", b"\xff\xfe\x00", bytes(range(256)))[number],
        "crc": (b"\0\0\0\0", b"\xff\xff\xff\xff", b"abcd", b"\x00\x01\x02\x03")[number],
        "class": ("FIRST", "SECOND")[number % 2],
        "price": (Decimal("0.00"), Decimal("-1.28"), Decimal("9999999.99"), Decimal("1.27"))[number],
        "day": (dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2100, 2, 28), dt.date(2026, 3, 29))[number],
        "gate_closes": (dt.time(0), dt.time(23, 59, 59, 999_000), dt.time(12), dt.time(7, 30))[number],
        "departs": at + dt.timedelta(days=(0, -40_000, 40_000, 1)[number]),
        "lands": at + dt.timedelta(days=(0, -40_000, 40_000, 1)[number], microseconds=number),
        "trip": f"89791762-2336-4186-9674-29{number}b90a802e2",
        "tags": ({}, {"a": -1}, {"b": 0}, {"ß": 2**31 - 1})[number],
        "stops": [{"airport": "ZRH" * stop, "minutes": None if stop else 45} for stop in range(number)],
    }


def _message(number: int) -> dict[str, Any]:
    return {
        "id": (0, -(2**63), 2**63 - 1, 4711)[number],
        "delay": (0, -(2**31), 2**31 - 1, -5)[number],
        "serial": (0, 2**64 - 1, 1, 2**40)[number],
        "late": bool(number % 2),
        "load": (0.0, -0.5, 1.5, 0.75)[number],
        "distance": (0.0, -0.1, 1.7e308, 1234.5)[number],
        "name": ("", "a", "Zürich → 東京 🛫", "x" * 300)[number],
        "raw": (b"", b"\x00", b"\xff\xfe\x00", bytes(range(256)))[number],
        "class": ("FIRST", "SECOND")[number % 2],
        "seats": [1, -1, 300][:number],
        "stops": [{"airport": "ZRH" * stop, "minutes": stop} for stop in range(number)],
        "tags": ({}, {"a": -1}, {"": 0}, {"ß": 2**31 - 1})[number],
        "note": (None, "", "a", "b")[number],
    }


def _document(number: int) -> dict[str, Any]:
    return {
        "id": (0, -(2**53), 2**53, 4711)[number],
        "late": bool(number % 2),
        "distance": (0.0, -0.1, 1.7e308, 1234.5)[number],
        "name": ("", "a", 'Zürich → "東京"\n🛫', "x" * 300)[number],
        "seats": [1, -1, 300][:number],
        "stop": {"airport": "ZRH" * number},
        "tags": ({}, {"a": -1}, {"": 0}, {"ß": 1})[number],
    }


@dataclass(frozen=True)
class Case:
    """Rows, and the schema that they are written with. ``message``: the name of Protobuf's."""

    kind: Kind
    text: str
    rows: tuple[dict[str, Any], ...]
    message: str | None = None

    @property
    def schema(self) -> Schema:
        return Schema(self.kind, self.text)


CASES = {
    "AVRO": Case("AVRO", json.dumps(_AVRO), tuple(map(_flight, range(4)))),
    "PROTOBUF": Case("PROTOBUF", _PROTOBUF, tuple(map(_message, range(4))), "acme.Flight"),
    "JSON": Case("JSON", json.dumps(_JSON), tuple(map(_document, range(4)))),
}


def made() -> dict[str, Any]:
    """What the file is to hold, by serializers of this day."""
    with SchemaRegistry() as registry, front(registry.url) as before:
        found = [
            *(_by_confluent(before.url, case, by_header=False) for case in CASES.values()),
            *(_by_confluent(before.url, case, by_header=True) for case in CASES.values()),
            *_by_apicurio(registry),
        ]
    return {
        "versions": {name: version(name) for name in ("confluent-kafka", "fastavro", "protobuf")}
        | {"apicurio-registry-serdes": _APICURIO},
        "values": found,
    }


def _by_confluent(url: str, case: Case, *, by_header: bool) -> dict[str, Any]:
    """In Python; the schema's id before each value, or its GUID in a header."""
    topic, client = f"confluent-{case.kind}-{by_header}", SchemaRegistryClient({"url": url})
    conf = {"schema.id.serializer": header_schema_id_serializer} if by_header else {}
    values, headers = [], []
    for row in case.rows:
        context = SerializationContext(topic, MessageField.VALUE, [])
        values.append(_serialized(client, case, conf, row, context).hex())
        headers += [value.hex() for _, value in context.headers]
    registered = client.get_latest_version(f"{topic}-value").schema_id
    name: dict[str, Any] = {"guid": guid_of(registered), "headers": headers} if by_header else {"id": registered}
    return {"by": "confluent-kafka", "kind": case.kind, **name, "values": values}


def _serialized(
    client: SchemaRegistryClient, case: Case, conf: dict[str, Any], row: dict[str, Any], context: SerializationContext
) -> bytes:
    if case.kind == "AVRO":
        found: bytes = AvroSerializer(client, case.text, conf=conf)(row, context)
    elif case.kind == "JSON":
        found = JSONSerializer(case.text, client, conf=conf)(row, context)
    else:
        message = GetMessageClass(message_named(case.schema, str(case.message)))
        serializer = ProtobufSerializer(message, client, conf | {"use.deprecated.format": False})
        found = serializer(message(**{name: value for name, value in row.items() if value is not None}), context)
    return found


def _by_apicurio(registry: SchemaRegistry) -> list[dict[str, Any]]:
    """In Java. Its serializer for Protobuf has a format of its own."""
    lines = []
    for case in (CASES["AVRO"], CASES["JSON"]):
        registry.register(f"apicurio-{case.kind}-value", case.text, case.kind)
        lines += [f"{case.kind}\t{case.text}\t{text}" for text in _as_json(case)]
    jars = os.pathsep.join(map(str, resolve(_JARS)))
    url = registry.url.replace("/apis/ccompat/v7", "/apis/registry/v2")
    done = subprocess.run(
        [find_java().path, "-cp", jars, str(_WRITER), url],
        input="\n".join(lines) + "\n",
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        encoding="utf-8",
    )
    values = done.stdout.split()
    found = []
    for case in (CASES["AVRO"], CASES["JSON"]):
        own, values = values[: len(case.rows)], values[len(case.rows) :]
        (id_,) = {int(value[2:10], 16) for value in own}
        found.append({"by": "apicurio-registry-serdes", "kind": case.kind, "id": id_, "values": own})
    return found


def _as_json(case: Case) -> list[str]:
    """The rows as one line each: Avro's encoding in JSON, or JSON itself."""
    if case.kind == "JSON":
        return [json.dumps(row, ensure_ascii=False) for row in case.rows]
    out = io.StringIO()
    fastavro.json_writer(out, json.loads(case.text), case.rows)
    return out.getvalue().splitlines()


if __name__ == "__main__":
    FILE.write_text(json.dumps(made(), indent=1) + "\n", encoding="utf-8")
