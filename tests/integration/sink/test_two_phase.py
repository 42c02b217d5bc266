"""Transactions that never expire: where brokers offer them, who may, and what is cleared up because no timeout does."""

from __future__ import annotations

import uuid

import pytest

from spark_eos.options.parse import SinkOptions, sink_options
from spark_eos.protocol.names import ledger_name
from tests.support.judges.kafka_view import write
from tests.support.models.open_query import session_of
from tests.support.queries.sink_queries import Sink, kafka_frame

ON = {"transaction.two.phase.commit": "true"}


def options_of(cluster, topic: str, **given: str) -> SinkOptions:
    return sink_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, **ON, **given})


@pytest.fixture
def out(guarded) -> str:
    name = f"out-{uuid.uuid4()}"
    guarded.cluster.create_topic(name)
    return name


def test_a_querys_transactions_never_expire_but_its_ledgers_do(guarded, spark, out, tmp_path):
    """And the head says that its decision is by two-phase commit."""
    source = f"in-{uuid.uuid4()}"
    guarded.cluster.create_topic(source)
    write(guarded.cluster.bootstrap_servers, source, [(0, "a")])
    query = Sink(guarded.cluster, tmp_path, topic=out, transaction__two__phase__commit="true")
    query.run(kafka_frame(spark, guarded.cluster, source))
    assert guarded.view.values(out) == ["a"]
    options = options_of(guarded.cluster, out)
    own = session_of(options, query.id)
    head = own.ports.ledger.read()
    assert head.two_phase and head.decision.two_phase
    (written,) = head.decision.written
    ledger = ledger_name(options.prefix, query.id)
    described = own.coordinator.describe([written.pair.id, ledger])
    assert not described[written.pair.id].expires
    assert described[ledger].timeout_ms == 10_000
