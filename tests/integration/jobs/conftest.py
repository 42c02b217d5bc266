"""Fixtures of the jobs' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.queries.ingests import Setting
from tests.support.queries.topics_job import TopicsJob
from tests.support.tables.delta import DeltaSpark, ToDelta, ToKafka, delta_spark


@pytest.fixture
def setting(cluster, spark, view, topic, tmp_path) -> Setting:
    """A folder, a topic, and ingests from the one into the other."""
    return Setting(cluster, spark, view, topic(2), tmp_path / "files")


@pytest.fixture
def topics_job(view, topic, tmp_path) -> TopicsJob:
    """Two topics, and the main job from one to the other."""
    return TopicsJob(view, topic(2), topic(2), tmp_path)


@pytest.fixture(scope="session")
def delta() -> Iterator[DeltaSpark]:
    """A Spark that knows Delta, in a process of its own."""
    with delta_spark() as spark:
        yield spark


@pytest.fixture
def job(delta, cluster, topic, tmp_path) -> ToDelta:
    """A topic of two partitions, a table, and the job between them."""
    return ToDelta(delta, cluster.bootstrap_servers, topic(2), tmp_path)


@pytest.fixture
def back(delta, cluster, topic, tmp_path) -> ToKafka:
    """The table of `job`, another topic of two partitions, and the job from one to the other."""
    return ToKafka(delta, cluster.bootstrap_servers, topic(2), tmp_path)
