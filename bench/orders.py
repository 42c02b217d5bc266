"""The rows of mode ``registry``: orders as Avro, of 8 fields and about 60 bytes. Three of four are paid."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from functools import partial
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from bench.result import WrongResult
from bench.source import PARTITIONS

_CURRENCIES = ("EUR", "USD", "GBP")
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": "string"},
            {"name": "total", "type": "double"},
            {"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": list(_CURRENCIES)}},
            {"name": "quantity", "type": "int"},
            {"name": "paid", "type": "boolean"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "note", "type": ["null", "string"]},
        ],
    }
)
#: The same columns for Spark.
DDL = "id BIGINT, customer STRING, total DOUBLE, currency STRING, quantity INT, paid BOOLEAN, at TIMESTAMP, note STRING"
#: So many different orders come again and again.
DIFFERENT = 4096
_BEGIN = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def order(number: int) -> dict[str, Any]:
    """The order with this id, as fastavro reads and writes it."""
    return {
        "id": number,
        "customer": f"customer-{number * 7919 % 100_003:06d}",
        "total": number * 104_729 % 1_000_000 / 100,
        "currency": _CURRENCIES[number % len(_CURRENCIES)],
        "quantity": 1 + number % 9,
        "paid": number // PARTITIONS % 4 != 0,
        "at": _BEGIN + dt.timedelta(milliseconds=number * 9_973),
        "note": None if number % 8 == 0 else f"by parcel no. {number:06d}",
    }


def paid_among(rows: int) -> Counter[int]:
    """How often each paid order is among so many rows, by its id. With a multiple of `bench.source.UNIT`, each
    partition has three of four."""
    whole, rest = divmod(rows, DIFFERENT)
    return Counter({n: whole + (n < rest) for n in range(DIFFERENT) if order(n)["paid"] and whole + (n < rest)})


def register(registry: str, topic: str) -> int:
    """Register the schema for values of the topic; its id."""
    return SchemaRegistryClient({"url": registry}).register_schema(f"{topic}-value", Schema(SCHEMA, "AVRO"))


def serialized(registry: str, topic: str) -> list[bytes]:
    """All different orders by Confluent's serializer, which registers the schema for values of the topic."""
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry}), SCHEMA)
    values = [serialize(order(number), _value_of(topic)) for number in range(DIFFERENT)]
    return [value for value in values if value is not None]


def check_paid(values: Counter[bytes], registry: str, topic: str, rows: int) -> None:
    """Raise WrongResult unless a topic has the paid ones of so many rows, each as often as it was written, by
    Confluent's deserializer. ``values``: how often the topic has each."""
    deserialize = partial(AvroDeserializer(SchemaRegistryClient({"url": registry})), ctx=_value_of(topic))
    found: Counter[int] = Counter()
    for value, times in values.items():
        read: Any = deserialize(value)
        if read != order(read["id"]):
            raise WrongResult(f"the order {read['id']} was written as {read}")
        found[read["id"]] += times
    if found != (wanted := paid_among(rows)):
        raise WrongResult(f"{found.total():,} orders were written, or others than the {wanted.total():,} paid ones")


def _value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)
