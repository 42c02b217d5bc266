"""What the sink's user may not do is named, before any task where the cluster tells."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from spark_eos.errors import LedgerError, Unauthorized
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.ledger import KafkaLedger
from spark_eos.options.parse import SinkOptions, sink_options
from spark_eos.protocol.head import Head
from tests.support.models.open_query import checked
from tests.support.servers.acl_cluster import Guarded


def options_of(guarded: Guarded, **given: str) -> SinkOptions:
    """Those of a sink that writes to a new topic, by way of a ledger of its own that is not there yet."""
    out = f"out-{uuid.uuid4()}"
    guarded.cluster.create_topic(out)
    common = {"kafka.bootstrap.servers": guarded.cluster.bootstrap_servers, "topic": out}
    return sink_options(common | {"ledger.topic": f"ledger-{uuid.uuid4()}"} | given)


def test_a_ledger_that_may_not_be_created(guarded):
    """A user without the right to create topics is told how to create the ledger; then nothing more is needed."""
    options = options_of(guarded)
    forbidden = [(ResourceType.BROKER, "kafka-cluster"), (ResourceType.TOPIC, "ledger")]
    with guarded.all_forbidden(AclOperation.CREATE, *forbidden):
        with pytest.raises(LedgerError, match=options.ledger_topic) as caught:
            checked(options)
        assert caught.value.condition == "EOS_LEDGER_NOT_CREATED"
        assert "cleanup.policy=compact" in caught.value.hint
    assert checked(options).ledger_partitions > 0


def test_a_ledger_that_may_not_be_read(guarded):
    """A head that cannot be looked at is never taken for one that is not there; the right that is missing is named."""
    options = options_of(guarded)
    partitions = checked(options).ledger_partitions
    query = str(uuid.uuid4())

    def ledger() -> KafkaLedger:
        return KafkaLedger(broker_client(options.kafka), options.ledger_topic, partitions, options.prefix, query)

    head = Head("r1", 1, (), 5)
    ledger().take().publish(head)
    with guarded.forbidden(ResourceType.TOPIC, "ledger", AclOperation.READ):
        with pytest.raises(Unauthorized, match=options.ledger_topic) as caught:
            ledger().read()
        assert caught.value.condition == "EOS_UNAUTHORIZED"
        assert "READ" in caught.value.hint
    assert ledger().read() == head
