"""Fixtures for tests against a real broker.

In a conftest.py: ``pytest_plugins = ["spark_eos.devcluster.pytest_plugin"]``.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator

import pytest

from spark_eos.devcluster import DevCluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[DevCluster]:
    """One broker, shared by all tests of the session: leave it running, and use topics of your own."""
    with DevCluster() as running:
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
