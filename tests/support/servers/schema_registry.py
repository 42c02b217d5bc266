"""A real schema registry on this machine, its own API, and values of Confluent's serializer in a topic."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import repeat
from typing import Any
from urllib.request import Request, urlopen

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_eos.tools.devcluster.registry import DevRegistry
from tests.support.waiting import TIMEOUT

_JSON = "application/vnd.schemaregistry.v1+json"


class SchemaRegistry(DevRegistry):
    """A registry that is empty, and gone at the end, or with the process of the tests."""

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """The id of a version of the subject, by the registry's own API."""
        body = {"schema": schema, "schemaType": kind, "references": references or []}
        found: int = self.call("POST", f"subjects/{subject}/versions", body)["id"]
        return found

    def call(self, method: str, path: str, body: object = None) -> Any:  # JSON
        """The answer to a request. Raises HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}/{path}", data, {"Content-Type": _JSON}, method=method)
        with urlopen(request, timeout=TIMEOUT) as answer:
            return json.load(answer)


def produce(
    servers: str,
    url: str,
    topic: str,
    schema: str,
    values: Iterable[dict[str, Any] | bytes | None],
    keys: Iterable[bytes | None] = repeat(None),
) -> None:
    """Produce values to partition 0, by Confluent's own serializer of Avro; bytes and tombstones as they are."""
    serialize = AvroSerializer(SchemaRegistryClient({"url": url}), schema)
    context = SerializationContext(topic, MessageField.VALUE)
    producer = Producer({"bootstrap.servers": servers})
    for value, key in zip(values, keys):  # noqa: B905, keys may be endless
        data = serialize(value, context) if isinstance(value, dict) else value
        producer.produce(topic, data, key, partition=0)
    assert producer.flush(TIMEOUT) == 0
