"""One of the gray networks, and one of the clocks that are set, by the seed, on a broker for these: for every day."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing

import pytest

from spark_eos.tools.devcluster import DevCluster
from tests.chaos import test_clocks, test_gray
from tests.chaos.test_clocks import strike_at_a_jump
from tests.chaos.test_gray import strike
from tests.support.judges.kafka_view import KafkaView, open_view
from tests.support.kills.scene import Scene, topics_of
from tests.support.servers.clock import Clock
from tests.support.servers.proxy import Proxy

CHANCE = random.Random(os.environ.get("SPARK_EOS_SEED", "of the day"))
#: Those that are over soon, also when nothing goes on meanwhile.
FAULT = CHANCE.choice(["requests_are_lost", "answers_are_lost", "another_answer", "an_impossible_size"])
POINT = CHANCE.choice(test_gray.POINTS)
JUMP = CHANCE.choice(test_clocks.JUMPS)
LASTS_S = 3.0


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with closing(Proxy()) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    return Clock(tmp_path_factory.mktemp("day") / "clock")


@pytest.fixture(scope="module")
def sick(proxy: Proxy, clock: Clock) -> Iterator[DevCluster]:
    """One broker, with a clock of its own, and behind the proxy for whoever bootstraps from there."""
    with clock.for_programs():
        cluster = DevCluster(config=test_clocks.CONFIG, proxies=[proxy.port]).open()
    with closing(cluster):
        proxy.upstream = cluster.broker(0).proxied_port
        yield cluster


@pytest.fixture(scope="module")
def view_of_it(sick: DevCluster) -> Iterator[KafkaView]:
    with open_view(sick.bootstrap_servers) as view:
        yield view


def test_a_gray_network_by_seed(sick, proxy, view_of_it, spark, tmp_path):
    """For three seconds, at one of the points."""
    scene = Scene(view_of_it, topics_of(sick), tmp_path, bootstrap_servers=proxy.address)
    try:
        strike(scene, spark, POINT, FAULT, [proxy], LASTS_S)
    finally:
        proxy.restore()


def test_a_clock_by_seed(sick, clock, view_of_it, spark, tmp_path):
    """The broker's is set while transactions are open."""
    try:
        strike_at_a_jump(Scene(view_of_it, topics_of(sick), tmp_path), spark, clock, *JUMP)
    finally:
        clock.set(0)
