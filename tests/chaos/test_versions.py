"""The cluster's version changes while a query runs: its transaction.version is raised or lowered in the middle of a
micro-batch; its brokers are replaced by newer ones, one after the other.

``--kafka-version`` chooses the version that the feature changes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_eos.kafka.net.client import LEVEL_S
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView, open_view
from tests.support.kills import query
from tests.support.kills.scene import PARTITIONS, Scene, topics_of
from tests.support.queries.data_paths import also_by
from tests.support.servers.healed_brokers import BROKERS, heal
from tests.support.waiting import wait_for

pytestmark = pytest.mark.chaos

FEATURE = "transaction.version"
#: In micro-batch 1: its first rows are written; or all is decided, and nothing ended.
WRITING, DECIDED = f"prepare.wrote=hold@{PARTITIONS}", "commit.decided=hold@2"
OLD, NEW, RELEASE = "3.9.2", "4.1.2", "4.1"


@pytest.fixture(scope="module")
def changing(request: pytest.FixtureRequest) -> Iterator[DevCluster]:
    version = request.config.getoption("--kafka-version")
    if version.startswith("3."):
        pytest.skip("Kafka 3 has no transaction.version")
    with DevCluster(version=version, features={FEATURE: 1}) as cluster:
        yield cluster


@pytest.fixture
def view(changing: DevCluster) -> Iterator[KafkaView]:
    with open_view(changing.bootstrap_servers) as view:
        yield view


def change_features(cluster: DevCluster, *words: str) -> None:
    """By Kafka's own tool."""
    tool = "org.apache.kafka.tools.FeatureCommand"
    cluster.java_tool(tool, "--bootstrap-server", cluster.bootstrap_servers, *words)


def set_level(cluster: DevCluster, view: KafkaView, wanted: int) -> None:
    if view.feature(FEATURE) == wanted:
        return
    way = "upgrade" if wanted > view.feature(FEATURE) else "downgrade"
    change_features(cluster, way, "--feature", f"{FEATURE}={wanted}")
    wait_for(lambda: view.feature(FEATURE) == wanted, f"{FEATURE} {wanted}")


def begin_at(cluster: DevCluster, view: KafkaView, level: int) -> None:
    """Where it is lowered to 0, no worker that Spark uses again may take it for what it was in the case before."""
    lowered = level == 0 < view.feature(FEATURE)
    set_level(cluster, view, level)
    if lowered:
        heard = time.monotonic() + LEVEL_S
        wait_for(lambda: time.monotonic() > heard, "what workers remember", 2 * LEVEL_S)


@also_by("transform", "mirror")
@pytest.mark.parametrize("point", [WRITING, DECIDED], ids=["writing", "decided"])
@pytest.mark.parametrize(("was", "becomes"), [(0, 2), (2, 0), (1, 2), (2, 1)])
def test_the_feature_changes_in_the_middle_of_a_batch(was, becomes, point, changing, view, way, spark, tmp_path):
    """Each transaction is ended by the version by which it began; later ones go by the new one. At 0, coordinators
    cannot note what began at 2: the query stops by name, and goes on when the feature is raised again."""
    begin_at(changing, view, was)
    scene = Scene(view, topics_of(changing), tmp_path, way=way)

    def can_note_again():
        if (was, becomes) == (2, 0):
            set_level(changing, view, 1)
            changing.stop(0)
            changing.start(0)

    scene.strike(spark, point, lambda _: set_level(changing, view, becomes), before_restart=can_note_again)
    scene.feed()
    scene.check(scene.drain(spark))


@also_by("transform", "mirror")
def test_brokers_are_replaced_one_after_the_other(way: str, spark: SparkSession, tmp_path: Path) -> None:
    """From Kafka 3.9 to 4.1, and then the cluster's features; the query goes on, or is started again."""
    config = {"min.insync.replicas": "2"}
    with (
        DevCluster(BROKERS, version=OLD, config=config) as cluster,
        open_view(cluster.bootstrap_servers) as view,
    ):
        scene = Scene(view, topics_of(cluster), tmp_path, way=way)
        scene.spec = replace(scene.spec, available_now=False)
        with scene.recorded():
            scene.check(_while_they_are_replaced(cluster, view, scene, spark))


def _while_they_are_replaced(cluster: DevCluster, view: KafkaView, scene: Scene, spark: SparkSession) -> str:
    """Run the query meanwhile; its id."""
    running = query.start(spark, scene.spec)
    try:
        for i in range(BROKERS):
            scene.feed()
            cluster.replace(i, NEW)
            heal(cluster)
            running = _going_on(running, scene, spark)
        assert view.feature(FEATURE) == 0
        change_features(cluster, "upgrade", "--release-version", RELEASE)  # as after an upgrade that is to stay
        wait_for(lambda: view.feature(FEATURE) == 2, "transaction.version 2")
        scene.feed()
        running = _going_on(running, scene, spark)
        running.processAllAvailable()
    finally:
        running.stop()
    return running.id


def _going_on(running, scene: Scene, spark: SparkSession):
    """The query at the end of its input, started again where it has stopped with an error that has a name."""
    if running.exception() is not None:
        assert "[EOS_" in str(running.exception()), str(running.exception())
        running = query.start(spark, scene.spec)
    scene.wait_for_the_end_of_the_input(running)
    return running
