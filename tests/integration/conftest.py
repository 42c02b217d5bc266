"""Fixtures of the source's and the sink's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.options.parse import stream_options
from spark_eos.source.reader import EosKafkaStreamReader
from spark_eos.tools.devcluster import DevCluster
from tests.support.queries.refusal import Refusal
from tests.support.queries.sink_queries import VALUE, Files, Sink
from tests.support.queries.source_calls import Writer
from tests.support.runs.installed_wheel import Bare, build_wheel, install
from tests.support.servers.acl_cluster import Guarded, guarded_cluster
from tests.support.servers.secure_cluster import Secure, secure_cluster


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """What a new user has: the wheel without extras, in an environment of its own."""
    return install(wheel, tmp_path_factory.mktemp("bare") / "environment")


@pytest.fixture(scope="session")
def with_cli(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Bare:
    """The wheel with its command line, and nothing else."""
    return install(wheel, tmp_path_factory.mktemp("with_cli") / "environment", "cli")


@pytest.fixture
def files(spark, tmp_path) -> Callable[..., Files]:
    """``files(schema)``: a new input."""
    return lambda schema=VALUE, name="input": Files(spark, tmp_path / name, schema)


@pytest.fixture
def sink(cluster, spark, tmp_path) -> Iterator[Callable[..., Sink]]:
    """``sink(topic="t", …)``; dots in options are written as two underscores."""
    yield lambda name="query", **options: Sink(cluster, tmp_path / name, **options)
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def producer(cluster: DevCluster) -> Callable[..., Producer]:
    """``producer(linger_ms=5, …)``; dots are written as underscores."""

    def make(**config: object) -> Producer:
        given = {key.replace("_", "."): value for key, value in config.items()}
        return Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **given})

    return make


@pytest.fixture
def refused(spark, view) -> Refusal:
    """Runs a query on the shared cluster that must stop."""
    return Refusal(spark, view)


@pytest.fixture(scope="session")
def guarded() -> Iterator[Guarded]:
    """A cluster of its own, where a test can forbid something."""
    with guarded_cluster() as guarded:
        yield guarded


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """A cluster of its own, with all mechanisms, and rules for who may do what."""
    with secure_cluster(tmp_path_factory.mktemp("secure")) as secure:
        yield secure


@pytest.fixture(scope="session")
def kafka(cluster: DevCluster) -> KafkaProperties:
    return KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers})


@pytest.fixture
def write(cluster: DevCluster) -> Callable[..., None]:
    return Writer(cluster, transactional=False).put


@pytest.fixture
def transactions(cluster: DevCluster) -> Writer:
    return Writer(cluster, transactional=True)


@pytest.fixture
def admin(cluster: DevCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


@pytest.fixture
def reader(cluster: DevCluster) -> Callable[..., EosKafkaStreamReader]:
    """``reader("topic1,topic2", failOnDataLoss=False)``: what a query on these options would use, from the earliest
    offset on. ``None`` for the topics, and for ``startingOffsets``, leaves that option out."""

    def make(topics: str | None, startingOffsets: str | None = "earliest", **options: object) -> EosKafkaStreamReader:
        given = {"subscribe": topics, "startingOffsets": startingOffsets, **options}
        given = {key.replace("__", "."): str(value) for key, value in given.items() if value is not None}
        return EosKafkaStreamReader(stream_options({"kafka.bootstrap.servers": cluster.bootstrap_servers} | given))

    return make
