"""Kafka 3.9, where transaction.version is 0: what the sink relies on there."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import astuple

import pyarrow as pa
import pytest

from spark_eos.errors import KafkaError, Unclear
from spark_eos.kafka.codes import OK, Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.kafka.producer.additions import Additions
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.requests.add_partitions_to_txn import add_partitions_to_txn
from spark_eos.kafka.requests.describe_transactions import describe_transactions
from spark_eos.kafka.requests.end_txn import end_own_txn
from spark_eos.kafka.transactions import PLAIN_END
from spark_eos.ledger.coordinator import TransactionCoordinator
from spark_eos.protocol.head import Pair, Probe
from spark_eos.protocol.task import check_begins
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView, open_view
from tests.support.kills.scene import topics_of
from tests.support.queries.transactions import LIFE_MS
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def old() -> Iterator[DevCluster]:
    with DevCluster(version="3.9.2") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def old_view(old: DevCluster) -> Iterator[KafkaView]:
    with open_view(old.bootstrap_servers) as view:
        yield view


@pytest.fixture(scope="module")
def kafka(old: DevCluster) -> KafkaProperties:
    return KafkaProperties({"bootstrap.servers": old.bootstrap_servers})


@pytest.fixture
def client(kafka: KafkaProperties) -> BrokerClient:
    return broker_client(kafka)


@pytest.fixture
def out(old: DevCluster) -> str:
    return topics_of(old)(2)


@pytest.fixture
def producer(kafka: KafkaProperties) -> Iterator[ArrowProducer]:
    made = ArrowProducer(broker_client(kafka), f"older-{uuid.uuid4()}", LIFE_MS)
    made.init()
    yield made
    made.abort()
    made.close()


@pytest.fixture
def end(client: BrokerClient) -> Callable[..., int]:
    return lambda own, commit: end_own_txn(client, astuple(own), commit, 20.0, PLAIN_END)


def write(producer: ArrowProducer, topic: str, *values: str, partition: int = 0) -> None:
    numbers = pa.array([partition] * len(values), pa.int32())
    producer.write(topic, 2, value=pa.array([value.encode() for value in values]), partition=numbers)
    producer.flush()


def described(client: BrokerClient, own: Pair) -> tuple[str, int]:
    (state,) = describe_transactions(client, [own.id])
    return state.transaction_state, state.producer_epoch


def test_a_commit_leaves_the_epoch_and_an_addition_begins_again(producer, client, end, out, old_view):
    """So that CompleteAbort at the same or the next epoch is no evidence of a loss: only the log is."""
    write(producer, out, "a")
    own = producer.identity()
    assert [end(own, True) for _ in range(3)] == [OK] * 3
    wait_for(lambda: described(client, own) == ("CompleteCommit", own.epoch), "the end")
    assert add_partitions_to_txn(client, astuple(own), [(out, 0)], 10) == {(out, 0): OK}
    assert described(client, own) == ("Ongoing", own.epoch)
    assert end(own, False) == OK
    wait_for(lambda: described(client, own) == ("CompleteAbort", own.epoch), "the abort")
    assert old_view.values(out) == ["a"]
    assert end(own, True) == Code.INVALID_TXN_STATE


def test_a_batch_of_a_partition_that_was_not_added_is_refused(producer, out, monkeypatch):
    """Brokers verify it; what comes after the end can stay open nowhere."""
    monkeypatch.setattr(Additions, "add", lambda *_: None)
    with pytest.raises(KafkaError) as caught:
        write(producer, out, "a")
    assert caught.value.condition == "EOS_DELIVERY_FAILED"
    assert caught.value.parameters["reason"] in ("TRANSACTION_ABORTABLE", "INVALID_TXN_STATE")


def test_a_transaction_that_was_aborted_and_began_again_is_not_handed_over(producer, client, end, out):
    """The coordinator describes it as it should be; where it begins tells."""
    own, coordinator = producer.identity(), TransactionCoordinator(client, "older", "q")
    write(producer, out, "a")
    assert end(own, False) == OK
    wait_for(lambda: described(client, own)[0] == "CompleteAbort", "the abort")
    write(producer, out, "b", partition=1)
    assert described(client, own) == ("Ongoing", own.epoch)
    firsts = producer.firsts()
    assert firsts == {(out, 0): 0, (out, 1): 0}
    begins = coordinator.begins(own, firsts)
    assert begins == [Probe(out, 1, 0)]
    with pytest.raises(Unclear, match=f"{out}-0") as caught:
        check_begins(own, firsts, {(out, 1): 0})
    assert caught.value.condition == "EOS_TRANSACTION_NOT_HELD"


def test_the_first_batch_is_told_by_its_sequence_number(kafka, client, old, out):
    """For a producer that was not told where its rows are."""
    coordinator = TransactionCoordinator(client, "older", "q")
    producer = ArrowProducer(broker_client(kafka), f"older-{uuid.uuid4()}", LIFE_MS)
    producer.init()
    for value in ("a", "b"):
        producer.write(out, 1, value=pa.array([value]))
        producer.flush()
    own = producer.identity()
    assert producer.endtxn_version == PLAIN_END
    assert [coordinator.is_first(own, out, 0, offset) for offset in (0, 1)] == [True, False]
    assert coordinator.is_first(Pair(own.id, own.producer_id, own.epoch + 1), out, 0, 0) is False
    producer.abort()
    producer.close()
