"""What the sink's user may not do is named, before any task where the cluster tells."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from spark_eos.errors import LedgerError
from spark_eos.options.parse import sink_options
from tests.support.models.open_query import checked


def test_a_ledger_that_may_not_be_created(guarded):
    """A user without the right to create topics is told how to create the ledger; then nothing more is needed."""
    out = f"out-{uuid.uuid4()}"
    guarded.cluster.create_topic(out)
    given = {"kafka.bootstrap.servers": guarded.cluster.bootstrap_servers, "topic": out}
    options = sink_options(given | {"ledger.topic": f"ledger-{uuid.uuid4()}"})
    forbidden = [(ResourceType.BROKER, "kafka-cluster"), (ResourceType.TOPIC, "ledger")]
    with guarded.all_forbidden(AclOperation.CREATE, *forbidden):
        with pytest.raises(LedgerError, match=options.ledger_topic) as caught:
            checked(options)
        assert caught.value.condition == "EOS_LEDGER_NOT_CREATED"
        assert "cleanup.policy=compact" in caught.value.hint
    assert checked(options).ledger_partitions > 0
