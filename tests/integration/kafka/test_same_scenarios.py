"""A real broker answers as the brokers of `tests/wire` do: else what is found there says nothing."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from spark_eos.base.retry import retrying
from spark_eos.kafka.codes import COORDINATOR_RETRIES
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.kafka.requests.init_producer_id import INIT_PRODUCER_ID_TWO_PHASE
from spark_eos.kafka.transactions import NEVER_MS
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.servers.acl_cluster import Guarded
from tests.support.waiting import TIMEOUT, wait_for
from tests.wire.faults import Schedule
from tests.wire.judge import judge_rows
from tests.wire.play import staged
from tests.wire.query import Progress, start
from tests.wire.same import SCENARIOS, TWO_PHASE_SCENARIOS, Wire
from tests.wire.scenarios import Scene, read_back
from tests.wire.two_phase import TwoPhase

PARTITIONS = 3


@pytest.fixture(scope="module")
def scene(cluster: DevCluster) -> Callable[..., Scene]:
    """``scene(topic, ledger)``: a scene on the real broker, with a prefix of its own."""
    kafka = KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": "120"})

    def make(topic: str, ledger: str = "", seed: int = 1) -> Scene:
        return Scene(kafka, topic, ledger, PARTITIONS, f"wire-{uuid.uuid4().hex[:8]}", random.Random(seed))

    return make


def test_the_same_answers(scene: Callable[..., Scene], topic: Callable[..., str]) -> None:
    """Codes, states, epochs and visible rows of every scenario."""
    name = topic(PARTITIONS)
    for scenario in SCENARIOS:
        real = scenario(Wire(scene(name)))
        with staged(Schedule(3)) as stage:
            assert scenario(Wire(stage.scene)) == real, scenario.__name__


def test_the_same_answers_with_two_phase_commit(guarded: Guarded) -> None:
    """What never expires there, and who may not begin it; what would keep a prepared transaction is refused by all."""
    kafka, out = KafkaProperties({"bootstrap.servers": guarded.cluster.bootstrap_servers}), f"out-{uuid.uuid4()}"
    guarded.cluster.create_topic(out)
    scene = Scene(kafka, out, "", 1, f"wire-{uuid.uuid4().hex[:8]}", random.Random(1))
    for scenario in TWO_PHASE_SCENARIOS:
        real = scenario(Wire(scene))
        with staged(Schedule(3, two_phase=TwoPhase())) as stage:
            assert scenario(Wire(stage.scene)) == real, scenario.__name__
    real_codes = [first_codes(scene)]
    with guarded.only(ResourceType.TRANSACTIONAL_ID, scene.prefix, AclOperation.WRITE, AclOperation.DESCRIBE):
        real_codes.append(first_codes(scene))
    for plan, codes in zip((TwoPhase(), TwoPhase(forbidden=True)), real_codes, strict=True):
        with staged(Schedule(3, two_phase=plan)) as stage:
            assert first_codes(stage.scene) == codes


def first_codes(scene: Scene) -> list[int]:
    """What InitProducerId is answered: as we ask, to keep what is prepared, with and without two-phase commit, and for
    a plain transaction that lives for longer than brokers let it."""
    client, name = broker_client(scene.kafka), f"{scene.prefix}-codes"
    codes = [settled(client, name, {"enable2_pc": True}), settled(client, name, {})]
    codes += [
        settled(client, name, {"enable2_pc": two_phase, "keep_prepared_txn": True}) for two_phase in (True, False)
    ]
    return [*codes, settled(client, name, {"transaction_timeout_ms": NEVER_MS})]


def settled(client: BrokerClient, name: str, asked: dict[str, object]) -> int:
    """The code of an answer, once the coordinator is there."""
    plain = {"transactional_id": name, "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
    values = plain | {"enable2_pc": False, "keep_prepared_txn": False} | asked
    for _ in retrying(TIMEOUT):
        node, _ = client.coordinator(name, 10)
        answer = None if node is None else client.ask(node, INIT_PRODUCER_ID_TWO_PHASE, values)
        if answer is not None and answer.error_code not in COORDINATOR_RETRIES:
            return int(answer.error_code)
        client.forget([name])
    raise AssertionError("no answer")


def test_the_same_first_number(scene: Callable[..., Scene], topic: Callable[..., str]) -> None:
    """A producer's first row must have the number 0, as the brokers of `tests/wire` have it when they are strict."""

    def first_number(world: Wire) -> int:
        return world.write(world.init("a"), 5, "x")

    real = first_number(Wire(scene(topic(1))))
    with staged(Schedule(3, strict=True)) as stage:
        assert first_number(Wire(stage.scene)) == real


def test_a_query_on_a_real_broker(scene: Callable[..., Scene], topic: Callable[..., str], view: KafkaView) -> None:
    """The scenario of a query, without faults: it is done at its first start, and every row is there once."""
    real, progress = scene(topic(PARTITIONS), topic(2, cleanup_policy="compact")), Progress(batches=3)
    start(real, progress)
    assert (progress.done, progress.stops) == (3, [])
    wait_for(lambda: not view.held(real.topic), "the markers")
    for partition in range(PARTITIONS):
        judge_rows(partition, read_back(real, partition).rows, 3)
