"""The producer by librdkafka, where no broker answers."""

from __future__ import annotations

import pytest

from spark_eos.errors import ConnectionFailed, EosError, ProtocolStop
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.producer import librdkafka
from spark_eos.kafka.producer.librdkafka import LibrdkafkaProducer
from tests.support.hosts import nobody


@pytest.fixture
def producer():
    """Of a cluster that is not there."""
    with nobody() as servers:
        made = LibrdkafkaProducer(KafkaProperties({"bootstrap.servers": servers}), "name-of-a-task", 60_000)
        yield made
        made.close()


def ended_by(error: EosError) -> tuple[str, bool]:
    """The condition, and whether a restart is the way out."""
    assert "name-of-a-task" in error.message
    return error.condition, error.restart_helps


def test_no_coordinator_is_waited_for_without_bound(producer, monkeypatch):
    """A transactional id that nobody assigns a producer to ends by name once the time is up."""
    monkeypatch.setattr(librdkafka, "INIT_S", 0.3)
    with pytest.raises(ConnectionFailed) as caught:
        producer.init()
    assert ended_by(caught.value) == ("EOS_COORDINATOR_UNREACHABLE", True)


def test_a_producer_that_does_not_know_itself_hands_nothing_over(producer, monkeypatch):
    """Without the producer id there is no pair to decide on: the task fails."""
    monkeypatch.setattr(librdkafka, "IDENTITY_S", 0.3)
    with pytest.raises(ProtocolStop) as caught:
        producer.identity()
    assert ended_by(caught.value) == ("EOS_PRODUCER_WITHOUT_IDENTITY", True)
