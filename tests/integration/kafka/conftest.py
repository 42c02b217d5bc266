"""Fixtures of the tests of requests: clients of the shared cluster, transactions opened and ended by hand."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests import end_txn
from tests.support.queries.transactions import Transaction
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def client(kafka: KafkaProperties) -> BrokerClient:
    return BrokerClient(kafka)


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
    """EndTxn, by the version for the cluster's transactions; the first answer that is an outcome."""

    def send(asked: tuple[str, int, int], commit: bool) -> int:
        def ask() -> tuple[int] | None:
            code = end_txn.end_txns(client, [asked], commit, version=end_txn.endtxn_version(client))[asked[0]]
            return None if code in (None, 51) else (code,)

        return wait_for(ask, f"an outcome of {asked}")[0]

    return send
