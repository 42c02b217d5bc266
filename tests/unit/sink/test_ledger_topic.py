"""What is said of a ledger topic that is less durable than the coordinators' own state."""

from __future__ import annotations

import uuid

import pytest

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.ledger.record_forms import OwnTopic
from spark_eos.protocol.head import Head
from spark_eos.protocol.head_codec import encode
from spark_eos.sink import ledger_topic
from spark_eos.sink.ledger_topic import less_durable

BROKER = {"transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2"}


@pytest.mark.parametrize("replicas", [3, 4])
def test_a_ledger_as_durable_as_the_coordinators_state(replicas):
    """Nothing is said of it."""
    assert less_durable("ledger", replicas, 2, BROKER) == []


def test_too_few_replicas():
    """A query whose newest decisions are lost with them is not always stopped: docs/design.md."""
    (said,) = less_durable("ledger", 2, 2, BROKER)
    assert "has 2 replica(s), but __transaction_state has 3" in said
    assert "rows can be written twice" in said


def test_too_few_replicas_in_sync():
    """One broker alone may acknowledge a decision, whatever the number of replicas."""
    (said,) = less_durable("ledger", 3, 1, BROKER)
    assert "min.insync.replicas=1, but __transaction_state has 2" in said
    assert "rows can be written twice" in said
    assert said.endswith("--entity-type topics --entity-name ledger --add-config min.insync.replicas=2")


def test_no_more_in_sync_than_replicas():
    """A cluster of one broker, where the second setting was left at Kafka's default."""
    alone = BROKER | {"transaction.state.log.replication.factor": "1"}
    assert less_durable("ledger", 1, 1, alone) == []


def test_what_cannot_be_checked_is_told():
    """A user who may not read the brokers' settings learns what to look at."""
    (said,) = less_durable("ledger", 3, 1, None)
    assert "3 replica(s) and min.insync.replicas=1" in said
    assert "DESCRIBE_CONFIGS" in said


ID = str(uuid.uuid4()).encode()


@pytest.mark.parametrize(
    ("records", "is_other"),
    [
        ([], False),
        ([(ID, None)], False),
        ([(ID, encode(Head("r", 1, (), 5)))], False),
        ([(b"k", b"v"), (ID, b'{"format":2,"run":"r","written_by":"9.0"}')], False),
        ([(ID, b'{"name":"Ada"}')], True),
        ([(ID, b'{"format":"A4","name":"Ada"}')], True),
        ([(ID, b"Ada"), (ID, None)], True),
        ([(b"k", b'{"format":1,"run":"r"}')], True),
    ],
    ids=["empty", "a tombstone", "a head", "a later head", "JSON", "JSON with a format", "text", "another key"],
)
def test_a_table_whose_keys_look_like_queries_is_no_ledger(records, is_other, monkeypatch):
    """Users have such keys, too. What a later version has written is for the start to judge."""
    topic = uuid.uuid4().hex
    monkeypatch.setattr(
        ledger_topic, "samples", lambda *_: {topic: [(n, key, value) for n, (key, value) in enumerate(records)]}
    )
    other = ledger_topic._other(BrokerClient(KafkaProperties({"bootstrap.servers": "h:1"})), topic, 1, OwnTopic.LEDGER)
    assert other == ("a topic with rows of another program" if is_other else None)
