"""What brokers must be able to do where transaction.version is below 2, by brokers that say what they speak."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_eos.errors import KafkaError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client, close_all
from spark_eos.sink.brokers import check_brokers
from tests.support.servers.fake_broker import SPOKEN, FakeBroker

ADD_PARTITIONS_TO_TXN = 24


@pytest.fixture
def cluster() -> Iterator[dict[int, FakeBroker]]:
    """Two brokers, the second of which is one of Kafka 3.5."""
    brokers: dict[int, FakeBroker] = {}
    FakeBroker(1, brokers, SPOKEN | {ADD_PARTITIONS_TO_TXN: (0, 4)})
    FakeBroker(2, brokers, SPOKEN | {ADD_PARTITIONS_TO_TXN: (0, 3)})
    yield brokers
    close_all()
    for broker in list(brokers.values()):
        broker.close()


def check(cluster: dict[int, FakeBroker], level: int) -> None:
    for broker in cluster.values():
        broker.features = {"transaction.version": level} if level else {}
    kafka = KafkaProperties({"bootstrap.servers": f"127.0.0.1:{cluster[1].port}"})
    check_brokers(broker_client(kafka), two_phase=False)


def test_brokers_before_kafka_3_6_are_named(cluster):
    """They take a batch without asking the coordinator, so that one that comes late would hang for ever."""
    with pytest.raises(KafkaError, match=r"older than Apache Kafka 3\.6.*: 2\.") as caught:
        check(cluster, 0)
    assert caught.value.condition == "EOS_BROKER_UNSUITABLE"


def test_nothing_is_asked_of_brokers_with_version_2(cluster):
    """There, the end of a transaction fences its producer."""
    check(cluster, 2)
