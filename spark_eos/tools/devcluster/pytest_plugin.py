"""Fixtures for tests against a real broker.

In a conftest.py: ``pytest_plugins = ["spark_eos.tools.devcluster.pytest_plugin"]``.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator

import pytest

from spark_eos.tools.devcluster import DevCluster
from spark_eos.tools.devcluster.jars import KAFKA_VERSION


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("spark-eos")
    group.addoption("--kafka-version", default=KAFKA_VERSION, help="of `cluster` (default: %(default)s)")
    group.addoption("--transaction-version", type=int, help="of `cluster` (default: that of the Kafka version)")


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[DevCluster]:
    """One broker, shared by all tests of the session: leave it running, and use topics of your own.

    It keeps rows for ever, unless a topic has another retention: rows with an old timestamp would be deleted.
    """
    version, level = (request.config.getoption(f"--{what}-version") for what in ("kafka", "transaction"))
    features = {} if level is None else {"transaction.version": level}
    with DevCluster(version=version, features=features, config={"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture
def topic(cluster: DevCluster, request: pytest.FixtureRequest) -> Callable[..., str]:
    """``topic(partitions=1, **config)`` creates a fresh topic on `cluster` and returns its name; as `create_topic`."""
    test = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")[:60]

    def create(partitions: int = 1, *, replication: int | None = None, **config: object) -> str:
        name = f"{test}-{uuid.uuid4().hex[:8]}"
        cluster.create_topic(name, partitions, replication=replication, **config)
        return name

    return create
