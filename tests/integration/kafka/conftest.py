"""Open transactions, and how they are ended, for the tests of what brokers answer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from spark_eos.devcluster import DevCluster
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.producer.librdkafka import LibrdkafkaProducer
from spark_eos.kafka.requests import end_txn
from tests.support.kafka_view import wait_for

LIFE_MS = 60_000


@pytest.fixture(scope="module")
def kafka(cluster: DevCluster) -> KafkaProperties:
    return KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers})


@pytest.fixture(scope="module")
def client(kafka: KafkaProperties) -> BrokerClient:
    return BrokerClient(kafka)


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


@pytest.fixture
def begin(kafka: KafkaProperties, topic: Callable[..., str]) -> Iterator[Callable[..., Transaction]]:
    """``begin()``: an open transaction, by default under a name and in a topic of its own."""
    opened: list[Transaction] = []

    def make(name: str | None = None, out: str | None = None, **more: int) -> Transaction:
        opened.append(Transaction(kafka, out or topic(), name or f"contract-{uuid.uuid4()}", **more))
        return opened[-1]

    yield make
    for transaction in opened:
        transaction.producer.close()


@pytest.fixture
def end(client: BrokerClient) -> Callable[..., int]:
    """EndTxn; the first answer that is an outcome."""

    def send(asked: tuple[str, int, int], commit: bool) -> int:
        def ask() -> tuple[int] | None:
            code = end_txn.end_txns(client, [asked], commit)[asked[0]]
            return None if code in (None, 51) else (code,)

        return wait_for(ask, f"an outcome of {asked}")[0]

    return send
