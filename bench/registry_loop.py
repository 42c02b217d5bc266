"""Consume orders as Avro, filter, produce, commit: the plain exactly-once loop of confluent-kafka, without Spark.

``python -m bench.registry_loop '<spec as JSON>'`` copies the paid ones of so many rows, by its own deserializer and
serializer, and prints when each transaction began and ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from bench.loop import LoopSpec, TimedTransaction, client
from bench.orders import SCHEMA
from bench.spec import answer

_TIMEOUT_S = 60.0
_AT_ONCE = 4096
#: What becomes of a value; None for a row that is left out.
Change = Callable[[bytes | None], bytes | None]


@dataclass(frozen=True)
class AvroLoopSpec(LoopSpec):
    """``registry``: its address."""

    registry: str = ""


def paid_orders(spec: AvroLoopSpec) -> Change:
    """What becomes of a value: one by the output's schema, or None for an order that is not paid."""
    registry = SchemaRegistryClient({"url": spec.registry})
    deserialize, serialize = AvroDeserializer(registry), AvroSerializer(registry, SCHEMA)
    read, write = (SerializationContext(topic, MessageField.VALUE) for topic in (spec.input, spec.output))

    def change(value: bytes | None) -> bytes | None:
        order: Any = deserialize(value, read)
        return serialize(order, write) if order["paid"] else None

    return change


def copy_by_client(spec: AvroLoopSpec) -> list[TimedTransaction]:
    """Rows and the group's offsets in one transaction, again and again. Raises KafkaException."""
    common, change = client(spec.bootstrap_servers), paid_orders(spec)
    consumer = Consumer(
        {
            **common,
            "group.id": f"loop-{spec.output}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            # By default it waits for a second whenever it has read ahead far enough.
            "fetch.queue.backoff.ms": 1,
        }
    )
    own: dict[str, str | int] = {"transactional.id": f"loop-{spec.output}", "delivery.report.only.error": True}
    producer = Producer(common | own)
    producer.init_transactions(_TIMEOUT_S)
    places = [TopicPartition(spec.input, p, 0) for p in range(spec.partitions)]
    consumer.assign(places)
    done, transactions = 0, []
    while done < spec.rows:
        begin = time.time()
        wanted = min(spec.rows_per_transaction, spec.rows - done)
        rows = _transaction(consumer, producer, places, wanted, spec.output, change)
        transactions.append(TimedTransaction(begin, time.time(), rows))
        done += rows
    consumer.close()
    return transactions


def _transaction(
    consumer: Consumer,
    producer: Producer,
    places: list[TopicPartition],
    wanted: int,
    output: str,
    change: Change,
) -> int:
    producer.begin_transaction()
    rows = 0
    while rows < wanted:
        messages = consumer.consume(min(_AT_ONCE, wanted - rows), _TIMEOUT_S)
        if not messages:
            raise TimeoutError(f"no row for {_TIMEOUT_S:.0f} s")
        for message in messages:
            _forward(producer, message, output, change)
        rows += len(messages)
        producer.poll(0)
    producer.send_offsets_to_transaction(consumer.position(places), consumer.consumer_group_metadata())
    producer.commit_transaction(_TIMEOUT_S)
    return rows


def _forward(producer: Producer, message: Message, output: str, change: Change) -> None:
    if message.error() is not None:
        raise KafkaException(message.error())
    if (value := change(message.value())) is None:
        return None
    while True:
        try:
            return producer.produce(output, value, message.key())
        except BufferError:
            producer.poll(0.01)


if __name__ == "__main__":
    answer(copy_by_client(AvroLoopSpec.given()))
