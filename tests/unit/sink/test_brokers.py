"""What brokers must be able to do where transaction.version is below 2, by brokers that say what they speak."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.errors import KafkaError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client, close_all
from spark_eos.sink import brokers
from spark_eos.sink.brokers import check_brokers
from tests.support.servers.fake_broker import SPOKEN, FakeBroker

ADD_PARTITIONS_TO_TXN = 24


@pytest.fixture
def cluster() -> Iterator[dict[int, FakeBroker]]:
    """Two brokers, the second of which is one of Kafka 3.5."""
    both: dict[int, FakeBroker] = {}
    FakeBroker(1, both, SPOKEN | {ADD_PARTITIONS_TO_TXN: (0, 4)})
    FakeBroker(2, both, SPOKEN | {ADD_PARTITIONS_TO_TXN: (0, 3)})
    yield both
    close_all()
    for broker in list(both.values()):
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


@pytest.mark.parametrize(
    ("settings", "named"), [({1: "true", 2: "true"}, ""), ({1: "true", 2: "false"}, ": 2"), (None, "")]
)
def test_brokers_that_verify_nothing_are_named(settings, named, monkeypatch, caplog):
    """With the setting that prevents a batch which comes late from hanging for ever; a warning where this user may not
    read it."""
    monkeypatch.setattr(brokers, "each_broker_setting", lambda *_: settings)
    client: Any = SimpleNamespace(feature=lambda _: 1, brokers_without=lambda _: [], bootstrap_servers="h:1")
    if named:
        with pytest.raises(KafkaError, match=rf"transaction\.partition\.verification\.enable=true{named}") as caught:
            check_brokers(client, two_phase=False)
        assert caught.value.condition == "EOS_BROKER_UNSUITABLE"
        return
    check_brokers(client, two_phase=False)
    assert ("cannot be checked" in caplog.text) == (settings is None)
