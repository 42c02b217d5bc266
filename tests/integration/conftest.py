"""Fixtures of the sink's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka_view import KafkaView, open_view
from sink_queries import VALUE, Files, Sink

from spark_eos.devcluster import DevCluster


@pytest.fixture(scope="module")
def view(cluster: DevCluster) -> Iterator[KafkaView]:
    """The cluster as an independent client sees it."""
    with open_view(cluster.bootstrap_servers) as view:
        yield view


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
