"""The ledger topic is made as durable as the coordinators' own state, also by a user who may not read how durable that
is; one that is less durable is told."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from spark_eos.kafka.admin.configs import broker_config, topic_config
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.ledger import KafkaLedger
from spark_eos.options.parse import SinkOptions, sink_options
from spark_eos.protocol.head import Head
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import open_view
from tests.support.models.open_query import checked
from tests.support.servers.acl_cluster import Guarded
from tests.support.waiting import wait_for

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
#: Brokers need rights on each other, so rules are for who has a password.
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "listener.name.passwords.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.passwords.plain.sasl.jaas.config": f'{MODULE} required user_bob="secret";',
}
BOB = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "bob",
    "kafka.sasl.password": "secret",
}


@pytest.fixture(scope="module")
def three() -> Iterator[Guarded]:
    """Three brokers, on which a topic that says nothing of it needs one replica in sync."""
    with (
        DevCluster(3, config=CONFIG, listeners={"PASSWORDS": "SASL_PLAINTEXT"}) as cluster,
        open_view(cluster.bootstrap_servers) as view,
    ):
        yield Guarded(cluster, view)


def options_of(cluster: DevCluster, ledger: str = "", **kafka: str) -> SinkOptions:
    """Those of a sink to a new topic, whose ledger is not there unless it is named."""
    out = f"out-{uuid.uuid4()}"
    cluster.create_topic(out)
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": out} | kafka
    return sink_options(given | {"ledger.topic": ledger or f"ledger-{uuid.uuid4()}"})


def replicas(options: SinkOptions) -> set[int]:
    (made,) = broker_client(options.kafka).metadata([options.ledger_topic]).topics
    return {len(p.replica_nodes) for p in made.partitions}


def test_a_ledger_made_by_a_user_who_may_not_read_the_brokers_settings(three, caplog):
    """Three replicas, of which two must have each decision, though by default one would do; and it can be written."""
    servers = {"kafka.bootstrap.servers": three.cluster.servers("PASSWORDS")}
    options = options_of(three.cluster, **BOB, **servers)
    client = broker_client(options.kafka)
    with three.forbidden(ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS):
        every_broker = range(20)  # each time another one is asked
        wait_for(lambda: all(broker_config(client) is None for _ in every_broker), "the rule at each broker")
        partitions = checked(options).ledger_partitions
    config = topic_config(client, options.ledger_topic)
    assert (config["min.insync.replicas"], config["unclean.leader.election.enable"]) == ("2", "false")
    wait_for(lambda: replicas(options) == {3}, "the topic at the broker that is asked")
    assert f"{options.ledger_topic} has 3 replica(s) and min.insync.replicas=2; whether" in caplog.text
    published(options, partitions)


def test_a_ledger_of_one_broker_made_by_such_a_user(guarded, caplog):
    """No more replicas are asked for than there can be."""
    options = options_of(guarded.cluster)
    with guarded.forbidden(ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS):
        partitions = checked(options).ledger_partitions
    assert topic_config(broker_client(options.kafka), options.ledger_topic)["min.insync.replicas"] == "1"
    assert replicas(options) == {1}
    assert f"{options.ledger_topic} has 1 replica(s) and min.insync.replicas=1; whether" in caplog.text
    published(options, partitions)


def published(options: SinkOptions, partitions: int) -> None:
    ledger = KafkaLedger(
        broker_client(options.kafka), options.ledger_topic, partitions, options.prefix, str(uuid.uuid4())
    )
    head = Head("r1", 1, (), 5)
    ledger.take().publish(head)
    assert ledger.read() == head
