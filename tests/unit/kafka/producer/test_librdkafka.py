"""The producer by librdkafka, where no broker answers."""

from __future__ import annotations

import contextlib
import gc
from pathlib import Path

import pytest

from spark_eos.errors import ConnectionFailed, EosError, ProtocolStop
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer import librdkafka
from spark_eos.kafka.producer.librdkafka import LibrdkafkaProducer
from tests.support.hosts import nobody
from tests.support.waiting import wait_for


@pytest.fixture
def producer():
    """Of a cluster that is not there."""
    with nobody() as servers:
        made = LibrdkafkaProducer(
            broker_client(KafkaProperties({"bootstrap.servers": servers})), "name-of-a-task", 60_000
        )
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
    assert ended_by(caught.value) == ("EOS_KAFKA_UNREACHABLE", True)


def test_a_producer_that_does_not_know_itself_hands_nothing_over(producer, monkeypatch):
    """Without the producer id there is no pair to decide on: the task fails."""
    monkeypatch.setattr(librdkafka, "IDENTITY_S", 0.3)
    with pytest.raises(ProtocolStop) as caught:
        producer.identity()
    assert ended_by(caught.value) == ("EOS_PRODUCER_WITHOUT_IDENTITY", True)


def clients() -> set[str]:
    """The main threads of this process's librdkafka clients."""
    found = set()
    for name in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # a thread that ends meanwhile
            if name.read_text().strip() == "rdk:main":
                found.add(name.parent.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are listed as Linux shows them")
def test_a_closed_producer_leaves_no_client_behind():
    """Neither threads nor statistics, which would come every 10 ms; whether or not garbage is collected."""
    before = clients()
    gc.disable()
    try:
        with nobody() as servers:
            made = LibrdkafkaProducer(
                broker_client(KafkaProperties({"bootstrap.servers": servers})), "name-of-a-task", 60_000
            )
            own = clients() - before
            assert own  # one; or more, as a thread that it has just begun bears its name for a moment
            made.close()
            made.close()
            wait_for(lambda: not own & clients(), "the end of the client's threads")
    finally:
        gc.enable()
