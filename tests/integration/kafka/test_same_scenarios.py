"""A real broker answers as the brokers of `tests/wire` do: else what is found there says nothing."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable

import pytest

from spark_eos.devcluster import DevCluster
from spark_eos.kafka.codes import OK
from spark_eos.kafka.config.properties import KafkaProperties
from tests.support.kafka_view import KafkaView
from tests.support.waiting import wait_for
from tests.wire.faults import Schedule
from tests.wire.judge import judge_rows
from tests.wire.play import staged
from tests.wire.query import Progress, start
from tests.wire.same import SCENARIOS, Wire
from tests.wire.scenarios import Scene, read_back, write_and_commit

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


def test_the_same_first_number(scene: Callable[..., Scene], topic: Callable[..., str]) -> None:
    """A producer's first row must have the number 0, as the brokers of `tests/wire` have it when they are strict."""

    def first_number(world: Wire) -> int:
        return world.write(world.init("a"), 5, "x")

    real = first_number(Wire(scene(topic(1))))
    with staged(Schedule(3, strict=True)) as stage:
        assert first_number(Wire(stage.scene)) == real


def test_transactions_on_a_real_broker(scene: Callable[..., Scene], topic: Callable[..., str], view: KafkaView) -> None:
    """The first scenario of the schedules, without faults: all is committed, and read back in order."""
    real = scene(topic(PARTITIONS))
    attempts = write_and_commit(real)
    assert [(attempt.error, attempt.code) for attempt in attempts] == [(None, OK)] * len(attempts)
    wait_for(lambda: not view.held(real.topic), "the markers")
    for partition in range(PARTITIONS):
        expected = [row for attempt in attempts for row in attempt.rows.get(partition, [])]
        read = read_back(real, partition)
        assert (read.rows, read.whole) == (expected, True)


def test_a_query_on_a_real_broker(scene: Callable[..., Scene], topic: Callable[..., str], view: KafkaView) -> None:
    """The second scenario, without faults: it is done at its first start, and every row is there once."""
    real, progress = scene(topic(PARTITIONS), topic(2, cleanup_policy="compact")), Progress(batches=3)
    start(real, progress)
    assert (progress.done, progress.stops) == (3, [])
    wait_for(lambda: not view.held(real.topic), "the markers")
    for partition in range(PARTITIONS):
        judge_rows(partition, read_back(real, partition).rows, 3)
