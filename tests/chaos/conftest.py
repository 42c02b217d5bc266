"""Three brokers as they are run for keeps: every topic on all of them, and written when two have it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView, open_view
from tests.support.servers.healed_brokers import BROKERS, heal
from tests.support.servers.proxy import Proxy

CONFIG = {
    "min.insync.replicas": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


@pytest.fixture(scope="session")
def proxies() -> Iterator[list[Proxy]]:
    """A proxy for each broker, for clients that bootstrap from them."""
    with ExitStack() as stack:
        made = [Proxy() for _ in range(BROKERS)]
        for proxy in made:
            stack.callback(proxy.close)
        yield made


@pytest.fixture(scope="session")
def _three(proxies: list[Proxy]) -> Iterator[DevCluster]:
    with DevCluster(brokers=BROKERS, config=CONFIG, proxies=[proxy.port for proxy in proxies]) as cluster:
        for i, proxy in enumerate(proxies):
            proxy.upstream = cluster.broker(i).proxied_port
        yield cluster


@pytest.fixture
def brokers(_three: DevCluster) -> DevCluster:
    """Three brokers, whole again whatever the test before has done to them."""
    heal(_three)
    return _three


@pytest.fixture
def view_of_three(brokers: DevCluster) -> Iterator[KafkaView]:
    """The three brokers as an independent client sees them, not through proxies."""
    with open_view(brokers.bootstrap_servers) as view:
        yield view


@pytest.fixture
def way() -> str:
    """How rows take their way, for fixtures: through Spark, unless the test itself is by others as well."""
    return "rows"
