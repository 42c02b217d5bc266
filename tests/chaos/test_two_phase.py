"""Two-phase commit by the broker: what outlives the timeouts that end other transactions, and what is rewritten."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_eos.base.failpoints import IN_QUERIES
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.tools.devcluster import DevCluster
from tests.chaos.test_kills import strike, variants
from tests.support.judges.kafka_view import KafkaView, open_view
from tests.support.kills.killed_program import running
from tests.support.kills.scene import PARTITIONS, Scene, topics_of
from tests.support.queries.data_paths import also_by
from tests.support.queries.transactions import Transaction
from tests.support.runs.case_cover import in_turn
from tests.support.servers.two_phase import TWO_PHASE
from tests.support.waiting import wait_for

TIMEOUT_MS = 10_000
IN_BATCH_2 = "hold@3"  # micro-batch 0 is empty


@pytest.fixture(scope="module")
def offering() -> Iterator[DevCluster]:
    """A broker that offers two-phase commit, and looks for transactions to time out every half second."""
    checks = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with DevCluster(config=TWO_PHASE | checks) as cluster:
        yield cluster


@pytest.fixture
def scene(offering, way, tmp_path) -> Iterator[Scene]:
    with open_view(offering.bootstrap_servers) as view:
        sink = {"transaction.timeout.ms": str(TIMEOUT_MS), "transaction.two.phase.commit": "true"}
        yield Scene(view, topics_of(offering), tmp_path, way=way, sink=sink)


def outlive(view: KafkaView, topic: str, query_id: str) -> None:
    """Until a plain transaction with the same timeout, which begins after the query's, has been aborted."""
    kafka, name = KafkaProperties({"bootstrap.servers": view.bootstrap_servers}), f"plain-{topic}"
    plain = Transaction(kafka, topic, name, 1, TIMEOUT_MS)
    try:
        wait_for(lambda: view.transactions(name) == {name: "CompleteAbort"}, "the time-out")
    finally:
        plain.producer.close()
    assert len(view.open_transactions(query_id)) == PARTITIONS


@in_turn("two-phase commit")
@also_by("copy")
@pytest.mark.parametrize("point", [pytest.param("commit.entered", marks=pytest.mark.chaos), "commit.decided"])
def test_a_driver_that_sleeps_while_nothing_expires(point, scene, offering, spark):
    """It goes on and commits: nothing has expired, and no row is written twice."""
    elsewhere = topics_of(offering)(1)
    course = scene.strike(
        spark, f"{point}={IN_BATCH_2}", lambda started: outlive(scene.view, elsewhere, str(started.id))
    )
    assert course.sees == "waits"
    assert course.rewritten == 0


@pytest.mark.chaos
@also_by("copy", "transform")
@pytest.mark.parametrize(("point", "decided"), [("commit.decided", True), ("prepare.prepared", False)])
def test_a_driver_that_dies_while_nothing_expires(point, decided, scene, offering, spark, tmp_path):
    """Killed after the decision, its restart writes nothing again; killed when it had prepared, exactly that batch."""
    elsewhere = topics_of(offering)(1)
    with scene.recorded():
        with running(scene.spec, f"{point}={IN_BATCH_2}", tmp_path) as killed:
            killed.wait_at(point)
            query = killed.query_id
            wait_for(lambda: len(scene.view.open_transactions(query)) == PARTITIONS, "the batch's transactions")
            killed.kill()
        scene.note()
        outlive(scene.view, elsewhere, query)
        batch = len(scene.view.rows(scene.output, committed=False)) - len(scene.view.rows(scene.output))
        assert batch > 0
        scene.drain(spark)
        scene.check(query)
    assert scene.rewritten() == (0 if decided else batch)


ONCE = [(point, variants(point)[i % len(variants(point))]) for i, point in enumerate(IN_QUERIES)]


@pytest.mark.chaos
@also_by("transform")
@pytest.mark.parametrize(("point", "variant"), ONCE)
def test_a_kill_at_every_point_leaves_nothing_open(point, variant, scene, spark):
    """No timeout ends what is left by the dead or by zombies, and yet all of it is ended."""
    strike(scene, spark, point, variant)
