"""Transactions opened like a task's, and what a plain Fetch sees of them."""

from __future__ import annotations

from dataclasses import dataclass

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.producer.librdkafka import LibrdkafkaProducer
from spark_eos.kafka.records.batches import RecordBatch, walk_batches
from spark_eos.kafka.records.rows import read_rows
from spark_eos.kafka.requests.fetch import FetchResponse, fetch_once

LIFE_MS = 60_000


class Transaction:
    """A transaction of a producer of its own, opened like a task's: its pair by the producer's own word."""

    def __init__(self, kafka: KafkaProperties, topic: str, name: str, rows: int = 1, life_ms: int = LIFE_MS) -> None:
        self.topic = topic
        self.producer = LibrdkafkaProducer(kafka, name, life_ms)
        self.producer.warm_up(topic)
        self.producer.init()
        self.producer.begin()
        for i in range(rows):
            self.producer.produce(topic, f"{name}.{i}", partition=0)
        self.producer.flush()
        self.pair = self.producer.identity()

    @property
    def asked(self) -> tuple[str, int, int]:
        return self.pair.id, self.pair.producer_id, self.pair.epoch


@dataclass(frozen=True)
class Fetched:
    """A Fetch response, its batches, and the rows that a read_committed reader sees."""

    answer: FetchResponse
    batches: list[RecordBatch]
    rows: list[tuple[int, bytes | None, bytes | None]]


def fetch(client: BrokerClient, topic: str, partition: int, offset: int, max_bytes: int) -> Fetched | None:
    found = fetch_once(client.properties, topic, partition, offset, max_bytes)
    if found is None:
        return None
    answer, data = found
    batches = list(walk_batches(data, answer.size, answer.aborted))
    return Fetched(answer, batches, [row for batch in batches if batch.visible for row in read_rows(data, batch)])
