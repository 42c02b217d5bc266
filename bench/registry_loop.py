"""The loop of `bench.loop` for orders as Avro, by confluent-kafka's own deserializer and serializer.

``python -m bench.registry_loop '<spec as JSON>'`` prints what a `bench.loop` prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from bench.loop import Change, LoopSpec, copy_by_client
from bench.orders import SCHEMA
from bench.spec import answer


@dataclass(frozen=True)
class AvroLoopSpec(LoopSpec):
    """``registry``: its address."""

    registry: str = ""


def paid_orders(spec: AvroLoopSpec) -> Change:
    """What becomes of a value: one by the output's schema, or None for an order that is not paid."""
    client = SchemaRegistryClient({"url": spec.registry})
    deserialize, serialize = AvroDeserializer(client), AvroSerializer(client, SCHEMA)
    read, write = (SerializationContext(topic, MessageField.VALUE) for topic in (spec.input, spec.output))

    def change(value: bytes | None) -> bytes | None:
        order: Any = deserialize(value, read)
        return serialize(order, write) if order["paid"] else None

    return change


if __name__ == "__main__":
    wanted = AvroLoopSpec.given()
    answer(copy_by_client(wanted, paid_orders(wanted)))
