"""What is said of a ledger topic that is less durable than the coordinators' own state."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.protocol.head import Head
from spark_eos.protocol.head_codec import encode
from spark_eos.sink import ledger_topic
from spark_eos.sink.ledger_topic import check_ledger, ledger_partitions, less_durable
from tests.support.judges.conditions import raises

CLIENT = BrokerClient(KafkaProperties({"bootstrap.servers": "h:1"}))
BROKER = {"transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2"}


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """One that is suitable: its ``name``, ``config``, and ``records``, each a key and a value. ``created``: with which
    numbers of replicas, and of those that are to be in sync, it was to be created, which nobody may."""
    config = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false", "min.insync.replicas": "2"}
    state = SimpleNamespace(name=uuid.uuid4().hex, config=config, records=[], created=[])

    def create_topic(_: object, topic: str, partitions: int, replicas: int, config: dict[str, str]) -> str:
        state.created.append((replicas, config["min.insync.replicas"]))
        return "not allowed"

    partition = SimpleNamespace(replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3])
    fakes = {
        "describe_topics": lambda *_, **__: {},
        "create_topic": create_topic,
        "topic_config": lambda *_: state.config,
        "describe_topic": lambda *_: SimpleNamespace(partitions=[partition], is_internal=False),
        "allowed_operations": lambda _: None,
        "samples": lambda *_: {state.name: [(n, *record) for n, record in enumerate(state.records)]},
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(ledger_topic, name, fake)
    return state


@pytest.mark.parametrize(
    ("replicas", "in_sync", "brokers", "said"),
    [
        (3, 2, BROKER, ()),
        (4, 2, BROKER, ()),
        (2, 2, BROKER, ("has 2 replica(s), but __transaction_state has 3", "rows can be written twice")),
        (3, 1, BROKER, ("min.insync.replicas=1, but __transaction_state has 2", "rows can be written twice")),
        (3, 1, BROKER, ("--entity-type topics --entity-name ledger --add-config min.insync.replicas=2",)),
        (1, 1, BROKER | {"transaction.state.log.replication.factor": "1"}, ()),  # one broker, left at Kafka's default
        (3, 1, None, ("3 replica(s) and min.insync.replicas=1", "DESCRIBE_CONFIGS")),  # a user who may not read them
    ],
)
def test_a_ledger_less_durable_than_the_coordinators_state(replicas, in_sync, brokers, said):
    """A query whose newest decisions are lost with its replicas is not always stopped: docs/design.md. One broker alone
    may acknowledge a decision, whatever the number of replicas."""
    warnings = less_durable("ledger", replicas, in_sync, brokers)
    assert len(warnings) == bool(said)
    assert all(text in warnings[0] for text in said)


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, 1, "1"), (2, 2, "2"), (5, 3, "2")])
def test_a_ledger_of_a_user_who_may_not_read_the_brokers_settings(topic, brokers, replicas, in_sync):
    """It is as durable as Kafka's defaults make the coordinators' state, but has no more replicas than there can be."""
    client: Any = SimpleNamespace(brokers=lambda: list(range(brokers)))
    with raises("EOS_LEDGER_NOT_CREATED", "not allowed"):
        ledger_partitions(client, topic.name, None)
    assert topic.created == [(replicas, in_sync)]


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("cleanup.policy", "delete", "decisions would be deleted"),
        ("cleanup.policy", "compact,delete", "decisions would be deleted"),
        ("unclean.leader.election.enable", "true", "a new leader may lack decisions"),
    ],
)
def test_a_ledger_that_may_lose_decisions(topic, setting, value, says):
    """Rows of a decision that is lost would be written again."""
    topic.config[setting] = value
    with raises("EOS_LEDGER_UNSUITABLE", says) as caught:
        check_ledger(CLIENT, topic.name, BROKER)
    assert "kafka-configs.sh" in caught.value.hint


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
def test_a_table_whose_keys_look_like_queries_is_no_ledger(topic, records, is_other):
    """Users have such keys, too. What a later version has written is for the start to judge."""
    topic.records = records
    if not is_other:
        assert len(check_ledger(CLIENT, topic.name, BROKER).partitions) == 1
        return
    with raises("EOS_LEDGER_UNSUITABLE.other_records", "a topic with rows of another program"):
        check_ledger(CLIENT, topic.name, BROKER)
