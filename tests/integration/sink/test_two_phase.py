"""Transactions that never expire: where brokers offer them, who may, and what is cleared up because no timeout does."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from spark_eos import cli
from spark_eos.errors import EosError
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.options.parse import SinkOptions, sink_options
from spark_eos.protocol.head import Decision, Head, Written
from spark_eos.protocol.names import TaskId, ledger_name, task_name
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.sink import two_phase
from spark_eos.sink.session import Session
from tests.support.judges.kafka_view import write
from tests.support.models.open_query import checked, session_of
from tests.support.queries.sink_queries import Sink, kafka_frame

ON = {"transaction.two.phase.commit": "true"}


def options_of(cluster, topic: str, **given: str) -> SinkOptions:
    return sink_options({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, **ON, **given})


def check(options: SinkOptions) -> None:
    """As the driver does before any task runs."""
    two_phase.check_two_phase(broker_client(options.kafka), options.prefix)


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


def test_a_cluster_that_does_not_offer_it(cluster, topic, spark, refused, tmp_path):
    """Told before any task, with the brokers that do not and what they need."""
    source, target = topic(1), topic(1)
    query = Sink(cluster, tmp_path, topic=target, transaction__two__phase__commit="true")
    text = refused(query, kafka_frame(spark, cluster, source), "EOS_TWO_PHASE_UNAVAILABLE", target)
    assert "unstable.api.versions.enable" in text
    assert "transaction.two.phase.commit.enable" in text


def test_the_brokers_longest_timeout_is_no_limit(guarded, out):
    """For what never expires, the option says only how long a row may wait."""
    options = options_of(guarded.cluster, out, **{"transaction.timeout.ms": "100000000"})
    assert checked(options).transaction_timeout_ms == 100_000_000
    with pytest.raises(EosError, match="EOS_TRANSACTION_TIMEOUT_TOO_LONG"):
        checked(replace(options, two_phase=False))


def test_a_user_who_may_not(guarded, out, spark, tmp_path):
    """Told before any task; what is open can be settled all the same."""
    options = options_of(guarded.cluster, out, **{"transactionalIdPrefix": "mine"})
    query = str(uuid.uuid4())
    own = session_of(options, query)
    head = open_run(own.ports, NewRun("r", 0, prefix="mine", two_phase=True))
    name = task_name("mine", query, TaskId(1, 0, 0))
    prepared = prepare(options, name)
    decide(own, head, prepared)
    with guarded.only(ResourceType.TRANSACTIONAL_ID, "mine", AclOperation.WRITE, AclOperation.DESCRIBE):
        with pytest.raises(EosError, match="EOS_TWO_PHASE_UNAVAILABLE") as caught:
            check(options)
        assert "TWO_PHASE_COMMIT" in str(caught.value)
        servers = ["--bootstrap-servers", guarded.cluster.bootstrap_servers, "--prefix", "mine"]
        assert cli.main([*servers, "recover", "--settle-only", "--query", query, "--watch", "0", "--yes"]) == 0
    assert guarded.view.values(out) == ["a"]
    check(options)


def prepare(options: SinkOptions, name: str) -> ArrowProducer:
    """A row in an open transaction that never expires."""
    producer = ArrowProducer(broker_client(options.kafka), name, 60_000, two_phase=True)
    producer.init()
    producer.write(options.topic, 1, value=pa.array(["a"]))
    producer.flush()
    producer.close()
    return producer


def decide(own: Session, head: Head, *prepared: ArrowProducer) -> None:
    written = []
    for i, producer in enumerate(prepared):
        pair = producer.identity()
        described = own.coordinator.describe([pair.id])[pair.id]
        assert not described.expires
        probe = own.coordinator.first_record(pair, described.places)
        assert probe is not None
        written.append(Written(i, pair, 1, 0, probe))
    decision = Decision(0, 0, len(written), len(written), 0, None, tuple(written), two_phase=True)
    own.ports.ledger.take().publish(replace(head, decision=decision))
