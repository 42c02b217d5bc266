"""Fixtures of mirrors: a second cluster, and mirrors to it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.pipelines.mirror.offset_map import make_map
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView, open_view
from tests.support.queries.mirrors import Mirror


@pytest.fixture(scope="session")
def version(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a cluster of the same version as `cluster` is made with."""
    kafka, level = (request.config.getoption(f"--{what}-version") for what in ("kafka", "transaction"))
    return {"version": kafka, "features": {} if level is None else {"transaction.version": level}}


@pytest.fixture(scope="package")
def other(version: dict[str, Any]) -> Iterator[DevCluster]:
    """Another cluster, of one broker, which creates topics that somebody asks for, as Kafka does by default."""
    with DevCluster(config={"auto.create.topics.enable": "true"}, **version) as running:
        yield running


@pytest.fixture(scope="module")
def there(other: DevCluster) -> Iterator[KafkaView]:
    """The other cluster as an independent client sees it."""
    with open_view(other.bootstrap_servers) as view:
        yield view


@pytest.fixture
def mirror(spark, view, there, tmp_path) -> Iterator[Callable[..., Mirror]]:
    """``mirror("a,b", prefix="p.")``: from the shared cluster to the other one, with a map of its own.

    ``first``: nothing was ever mirrored to either cluster. Else both have the map already: that there is none is
    believed after a second, several times in a run.
    """

    def make(topics: str, *, first: bool = False, **targets: object) -> Mirror:
        name = uuid.uuid4().hex[:8]
        made = Mirror(spark, view, there, tmp_path / name, topics, **{"map": f"map-{name}", **targets})
        if not first:
            for cluster in (view, there):
                client = broker_client(KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers}))
                make_map(client, made.targets.map, 1)
        return made

    yield make
    for query in spark.streams.active:
        query.stop()
