"""The broker's clocks run out while the driver is away: a transaction's, and that of a transactional id."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import open_view
from tests.support.kills import query
from tests.support.kills.killed_program import running
from tests.support.kills.scene import PARTITIONS, Course, Scene, in_batch_2, tell, topics_of
from tests.support.queries.data_paths import also_by
from tests.support.runs.case_cover import in_turn
from tests.support.waiting import wait_for

TIMEOUT_MS = 30_000  # no micro-batch may take half of it
#: Of each partition in a micro-batch.
ROWS = 12


@pytest.fixture(scope="module")
def punctual() -> Iterator[DevCluster]:
    """A broker that looks for transactions to time out every half second, not every ten."""
    with DevCluster(config={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}) as cluster:
        yield cluster


@in_turn("past the timeout")
@also_by("copy", "transform", "mirror")
@pytest.mark.parametrize(
    ("point", "condition", "lost"),
    [
        pytest.param("commit.entered", "EOS_TRANSACTION_EXPIRED", PARTITIONS, marks=pytest.mark.chaos),
        ("commit.decided", "EOS_TRANSACTION_LOST", PARTITIONS),
        pytest.param("commit.between", "EOS_TRANSACTION_LOST", PARTITIONS - 1, marks=pytest.mark.chaos),
    ],
)
def test_a_driver_that_sleeps_past_the_transactions_timeout(point, condition, lost, punctual, way, spark, tmp_path):
    """Before the decision the batch is replayed; after it, exactly what was lost is written again."""
    with open_view(punctual.bootstrap_servers) as view:
        sink = {"transaction.timeout.ms": str(TIMEOUT_MS)}
        scene = Scene(view, topics_of(punctual), tmp_path, rows_per_batch=PARTITIONS * ROWS, way=way, sink=sink)

        def sleep(started):
            assert len(view.open_transactions(started.id)) == lost
            wait_for(lambda: not view.open_transactions(started.id), "the time-out")

        course = scene.strike(spark, in_batch_2(point), sleep)
        assert course.sees == condition
        assert course.rewritten == lost * ROWS * scene.more


@pytest.fixture(scope="module")
def forgetful() -> Iterator[DevCluster]:
    """A broker that forgets a transactional id 20 seconds after its last use, and not after seven days."""
    config = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "transactional.id.expiration.ms": "20000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
    with DevCluster(config=config) as cluster:
        yield cluster


@pytest.mark.chaos
@also_by("copy", "transform", "mirror")
@pytest.mark.parametrize(("point", "lost"), [("commit.decided", PARTITIONS), ("commit.ended", 0)])
def test_transactional_ids_that_have_expired_before_the_replay(point, lost, forgetful, way, spark, tmp_path):
    """Killed after the decision; when the coordinator knows the ids no more, the log says what became of them."""
    with open_view(forgetful.bootstrap_servers) as view:
        sink = {"transaction.timeout.ms": str(TIMEOUT_MS)}
        spec = {"rows_per_batch": PARTITIONS * ROWS, "sink": sink, "master": f"local[{PARTITIONS}]"}  # a task for each
        scene = Scene(view, topics_of(forgetful), tmp_path, way=way, **spec)
        with scene.recorded():
            with running(scene.spec, in_batch_2(point), tmp_path) as killed:
                killed.wait_at(point)
                query_id = killed.query_id
                assert len(view.open_transactions(query_id)) == lost
                killed.kill()
            scene.note()
            wait_for(lambda: not view.transactions(query_id), "the expiration of the ids")
            since = time.time()
            scene.drain(spark)
            scene.check(query_id)
        assert scene.rewritten() == lost * ROWS * scene.more
        tell(Course("killed", scene.went_on(since), scene.rewritten()))


@pytest.mark.chaos
@also_by("transform", "mirror")
def test_a_query_that_is_idle_until_its_transactional_ids_expire(forgetful, way, spark, tmp_path):
    """That of the ledger, too, which the driver has taken ahead: the next micro-batch takes it anew."""
    with open_view(forgetful.bootstrap_servers) as view:
        scene = Scene(view, topics_of(forgetful), tmp_path, way=way, available_now=False)
        with scene.recorded():
            started = query.start(spark, scene.spec)
            try:
                scene.wait_for_the_end_of_the_input(started)
                wait_for(lambda: not view.transactions(started.id), "the expiration of the ids")
                scene.feed()
                scene.wait_for_the_end_of_the_input(started)
            finally:
                started.stop()
            scene.check(started.id)
