"""Questions about topics to a cluster that comes and goes."""

from __future__ import annotations

import threading

import pytest

from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.admin import topics as module
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net import client
from spark_eos.kafka.net.client import broker_client
from tests.support.servers.fake_broker import FakeBroker
from tests.support.waiting import TIMEOUT


@pytest.fixture
def broker():
    broker = FakeBroker(0, {})
    broker.topics = {"t": [0]}
    yield broker
    client.close_all()
    broker.close()


def test_a_cluster_that_is_away_is_waited_for_as_long_as_was_said(broker, monkeypatch):
    """Longer than one try takes: a restart of a broker does not end a query."""
    monkeypatch.setattr(client, "_FIRST_TRY_S", 0.05)
    kafka = KafkaProperties({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
    assert module.topic_partitions(broker_client(kafka), ["t"]) == {"t": 1}
    broker.fate = "silent"
    with pytest.raises(ConnectionFailed) as caught:
        module.end_offsets(broker_client(kafka), {"t": [0]}, timeout_s=0.2)
    assert caught.value.parameters["waited_s"] >= 0.15
    back = threading.Timer(0.2, lambda: setattr(broker, "fate", "works"))
    back.start()
    assert module.topic_partitions(broker_client(kafka), ["t"], timeout_s=TIMEOUT) == {"t": 1}
    back.join()
