"""The rights that `spark-eos doctor --acls` prints are enough for a query, and each of them is needed; nothing of
another user's can be looked at or ended with them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from kafka.protocol.admin.acl import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from spark_eos import cli
from spark_eos.errors import EosError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.net.metadata import CoordinatorKind
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.requests.init_producer_id import init_producer_id
from spark_eos.kafka.requests.list_transactions import ids_by_state
from spark_eos.ledger.coordinator import TransactionCoordinator
from spark_eos.ops.acls import Acl, Query, needed
from spark_eos.options.parse import SinkOptions, sink_options, stream_options
from spark_eos.protocol.names import TaskId, ledger_name, task_name
from spark_eos.sink import preflight, two_phase
from spark_eos.sink.job import SinkJob
from spark_eos.sink.schema import Columns
from spark_eos.sink.spark_rows import SparkRows
from spark_eos.source.reader import EosKafkaStreamReader
from tests.support.judges.kafka_view import KafkaView, open_view, write
from tests.support.models.open_query import session_of
from tests.support.queries.sink_queries import Sink
from tests.support.queries.transactions import LIFE_MS
from tests.support.servers.secure_cluster import LIMITED, Secure
from tests.support.waiting import wait_for

PREFIX = "limited"
QUERY = Query(("acl-in",), ("acl-out",), "acl-group", "acl-ledger", PREFIX, two_phase=True, creates_ledger=True)
ALL = needed(QUERY)
#: Whoever has created the ledger needs that no more.
NEEDED = [acl for acl in ALL if acl.operation != "CREATE"]
#: Kafka's numbers of resources, operations and patterns; and of "allow".
RESOURCES = {"TOPIC": 2, "GROUP": 3, "TRANSACTIONAL_ID": 5}
OPERATIONS = {"READ": 3, "WRITE": 4, "CREATE": 5, "DESCRIBE_CONFIGS": 10, "TWO_PHASE_COMMIT": 15}
LITERAL, PREFIXED, ALLOW = 3, 4, 3


@dataclass(frozen=True)
class Rules:
    """What the limited user may do on the secure cluster; by plain requests, as no client has a name for all of it."""

    view: KafkaView

    def add(self, *acls: Acl) -> None:
        creations = [CreateAclsRequest.AclCreation(**self._filter(acl, "")) for acl in acls]
        answer = self._send(CreateAclsRequest(creations=creations))
        assert [result.error_code for result in answer.results] == [0] * len(acls)
        self._wait(acls, there=True)

    def remove(self, *acls: Acl) -> None:
        filters = [DeleteAclsRequest.DeleteAclsFilter(**self._filter(acl, "_filter")) for acl in acls]
        answer = self._send(DeleteAclsRequest(filters=filters))
        assert [len(result.matching_acls) for result in answer.filter_results] == [1] * len(acls)
        self._wait(acls, there=False)

    @contextmanager
    def without(self, acl: Acl) -> Iterator[None]:
        self.remove(acl)
        try:
            yield
        finally:
            self.add(acl)

    def _filter(self, acl: Acl, suffix: str) -> dict[str, object]:
        pattern = "resource_pattern_type" if not suffix else "pattern_type_filter"
        return {
            f"resource_type{suffix}": RESOURCES[acl.resource],
            f"resource_name{suffix}": acl.name,
            pattern: PREFIXED if acl.prefixed else LITERAL,
            f"principal{suffix}": f"User:{LIMITED}",
            f"host{suffix}": "*",
            "operation": OPERATIONS[acl.operation],
            "permission_type": ALLOW,
        }

    def _wait(self, acls: Iterable[Acl], there: bool) -> None:
        """Until the broker, which learns of rules from the controller, goes by them."""
        for acl in acls:
            asked = DescribeAclsRequest(**self._filter(acl, "_filter"))
            wait_for(lambda asked=asked: bool(self._send(asked).resources) is there, f"{acl}: {there}")

    def _send(self, request):
        manager = self.view.kafka_python._manager
        return manager.run(manager.send, request)


@pytest.fixture(scope="module")
def view(secure: Secure) -> Iterator[KafkaView]:
    with open_view(secure.cluster.bootstrap_servers) as view:
        yield view


@pytest.fixture(scope="module")
def rules(secure: Secure, view: KafkaView) -> Iterator[Rules]:
    """With exactly those of `QUERY`."""
    secure.cluster.create_topic("acl-in")
    secure.cluster.create_topic("acl-out")
    write(secure.cluster.bootstrap_servers, "acl-in", [(0, "a"), (0, "b")])
    rules = Rules(view)
    rules.add(*ALL)
    yield rules
    rules.remove(*ALL)


def sink(secure: Secure, folder: Path) -> Sink:
    options = {"topic": "acl-out", "offsets__group__id": "acl-group", "ledger__topic": "acl-ledger"}
    two_phase = {"transactionalIdPrefix": PREFIX, "transaction__two__phase__commit": "true"}
    kafka = {f"kafka__{key.replace('.', '__')}": value for key, value in secure.limited().items()}
    return Sink(secure.cluster, folder, **options, **two_phase, **kafka)


def options_of(query: Sink) -> SinkOptions:
    return sink_options(query.options | {"checkpointLocation": str(query.checkpoint)})


def frame(spark, secure: Secure):
    kafka = {f"kafka.{key}": value for key, value in secure.limited().items()}
    rows = spark.readStream.format("eos-kafka").options(**kafka, subscribe="acl-in", startingOffsets="earliest")
    return rows.load().select("value", "timestamp")


@pytest.fixture(scope="module")
def copied(rules: Rules, secure: Secure, view: KafkaView, spark, tmp_path_factory) -> Sink:
    """A query that has run with no more than these, and whose last micro-batch is about to run again."""
    query = sink(secure, tmp_path_factory.mktemp("copied"))
    query.run(frame(spark, secure))
    query.forget(max(int(file.name) for file in Path(query.checkpoint, "commits").glob("[0-9]*")))
    assert view.values("acl-out") == ["a", "b"]
    assert view.group("acl-group", "acl-in") == view.ends("acl-in")
    start(secure, query)
    return query


def test_a_querys_transactions_never_expire_but_its_ledgers_do(copied):
    """And the head says that its decision is by two-phase commit."""
    own = session_of(options_of(copied), copied.id)
    head = own.ports.ledger.read()
    assert head.two_phase and head.decision.two_phase
    (written,) = head.decision.written
    ledger = ledger_name(PREFIX, copied.id)
    described = own.coordinator.describe([written.pair.id, ledger])
    assert not described[written.pair.id].expires
    assert described[ledger].timeout_ms == 10_000


def named(acl: Acl) -> str:
    return f"{acl.operation} on {acl.name}"


def start(secure: Secure, query: Sink) -> None:
    """What the driver looks at when a query starts, without Spark."""
    kafka = {f"kafka.{key}": value for key, value in secure.limited().items()}
    source = stream_options({**kafka, "subscribe": "acl-in", "startingOffsets": "earliest"})
    options = options_of(query)
    of_preflight = preflight._of_cluster, preflight._is_readable, preflight._check_checkpoint
    for cached in (*of_preflight, two_phase._check_brokers, two_phase._try_out):
        cached.cache_clear()
    client = broker_client(options.kafka)
    client.forget([ledger_name(PREFIX, query.id)])
    EosKafkaStreamReader(source).initialOffset()
    SinkJob.plan(
        client, options, SparkRows(Columns(key=False, topic=False, partition=False, headers=False, timestamp=True))
    )


@pytest.mark.parametrize("acl", NEEDED, ids=named)
def test_each_right_is_needed_and_named(acl, copied, rules, secure):
    """Operation and resource, before any task."""
    with rules.without(acl), pytest.raises(EosError) as caught:
        start(secure, copied)
    text = str(caught.value)
    assert acl.operation in text and acl.name in text


def test_the_transactions_of_others_are_out_of_reach(copied, secure, view, capsys):
    """Another query's, under a prefix of its own: they cannot be listed, described, ended or fenced, and its ledger
    cannot be read."""
    query, topic = str(uuid.uuid4()), f"other-{uuid.uuid4()}"
    name = task_name("other", query, TaskId(1, 0, 0))
    secure.cluster.create_topic(topic)
    own = ArrowProducer(
        broker_client(KafkaProperties({"bootstrap.servers": secure.cluster.bootstrap_servers})), name, LIFE_MS
    )
    own.init()
    own.write(topic, 1, value=pa.array([b"x"]))
    own.flush()
    limited = broker_client(KafkaProperties(secure.limited()))
    coordinator = TransactionCoordinator(limited, "other", query)
    assert view.open_transactions(name) == {name}
    assert ids_by_state(limited, ".*", ["Ongoing"], only_matching=False) == []
    for call in (
        lambda: coordinator.describe([name]),
        lambda: init_producer_id(limited, name, 60_000),
        lambda: init_producer_id(limited, ledger_name("other", query), 60_000),
    ):
        with pytest.raises(EosError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            call()
    # That the list is empty is no answer, as brokers leave out what this user may not see.
    given = [f"--kafka={key}={value}" for key, value in secure.limited().items() if key != "bootstrap.servers"]
    servers = ["--bootstrap-servers", secure.limited()["bootstrap.servers"], "--prefix", "other", *given]
    for more in ([], ["--query", query]):
        assert cli.main([*servers, "status", *more]) == 2
        assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in capsys.readouterr().err
    # Who has found out the rest elsewhere, and knows the coordinator, is refused by it.
    limited._coordinators[CoordinatorKind.TRANSACTION, name] = 0
    with pytest.raises(EosError, match=f"end transaction {name}"):
        coordinator.end({own.identity(): 5}, commit=False)
    with pytest.raises(EosError, match=f"describe transaction {name}"):
        coordinator.describe([name])
    assert view.open_transactions(name) == {name}
    own.abort()
    own.close()
