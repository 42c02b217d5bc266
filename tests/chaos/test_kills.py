"""A kill at every named point of the protocol, on a real broker: each row is there once, in order.

A query in a process of its own is held at the point and killed: the JVM and the Python driver with SIGKILL. Then the
same query goes on in another Spark on the same checkpoint, until its input is drained. In the variant ``zombie`` the
process that was held outlives its query, and goes on when the restarted query is done.

``make test`` runs a share of the set, by a seed (SPARK_EOS_SEED); ``make chaos`` runs all of it.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from spark_eos.base.failpoints import IN_QUERIES
from tests.support.kills import query
from tests.support.kills.killed_program import running
from tests.support.kills.scene import PARTITIONS, ROWS, Scene
from tests.support.queries.data_paths import also_by

TASKS_AFTER_SHUFFLE = 3

#: Faults that bring a query to the point, in micro-batch 2: micro-batch 0 is empty, 1 has PARTITIONS tasks.
_IN_BATCH_2 = {
    "open": "{point}=hold",
    "prepare": f"{{point}}=hold@{PARTITIONS + 3}",
    "ahead": "{point}=hold@3",
    "commit": "{point}=hold@3",
    "abort": f"{{point}}=hold, prepare.wrote=fail@{2 * PARTITIONS}",
}
_SPECIAL = {"commit.between": "{point}=hold@2"}  # micro-batch 0 has no transaction


def variants(point: str) -> tuple[str, ...]:
    """A process that only takes the ledger ahead waits for nothing else: it ends with its driver."""
    return ("dead",) if point.startswith("ahead.") else ("dead", "zombie")


EVERY = [(point, variant) for point in IN_QUERIES for variant in variants(point)]


def share() -> list[tuple[str, str]]:
    """Some of the cases for every day: of each phase one point, in one variant or the other."""
    chance = random.Random(os.environ.get("SPARK_EOS_SEED", "spark-eos"))
    phases = sorted({point.partition(".")[0] for point in IN_QUERIES})
    picked = [chance.choice([point for point in IN_QUERIES if point.startswith(f"{phase}.")]) for phase in phases]
    return [(point, variants(point)[i % len(variants(point))]) for i, point in enumerate(picked)]


def strike(scene: Scene, spark: SparkSession, point: str, variant: str, restart: query.Spec | None = None) -> str:
    """Kill the query at the point, drain its input by a restart, check; release what was held, check again.

    What readers see meanwhile is recorded and judged. ``restart``: how the query is started again, if not as before.
    Returns the query's id.
    """
    with scene.recorded():
        return struck(scene, spark, point, variant, restart)


def struck(scene: Scene, spark: SparkSession, point: str, variant: str, restart: query.Spec | None = None) -> str:
    """The same, with nothing recorded meanwhile."""
    if point.startswith("open."):
        scene.leave_decided(spark)
    faults = _SPECIAL.get(point, _IN_BATCH_2[point.partition(".")[0]]).format(point=point)
    with running(scene.spec, faults, scene.folder) as victim:
        victim.wait_at(point)
        zombie = victim.kill_all_but(point) if variant == "zombie" else None
        victim.kill()
    scene.spec = restart or scene.spec
    try:
        query_id = scene.drain(spark)
        scene.check(query_id)
        if zombie is not None:
            zombie.release()
            scene.check(query_id)
        return query_id
    finally:
        if zombie is not None:
            zombie.kill()


def by_seed() -> list[tuple[str, str]]:
    """Two of the share, by the seed."""
    return random.Random(os.environ.get("SPARK_EOS_SEED", "kills")).sample(share(), 2)


@pytest.mark.parametrize(("point", "variant"), by_seed())
def test_a_kill_loses_and_doubles_nothing(point, variant, view, topic, spark, tmp_path):
    """The share of the set for every day."""
    strike(Scene(view, topic, tmp_path), spark, point, variant)


@pytest.mark.chaos
def test_a_kill_after_a_shuffle(view, topic, spark, tmp_path, cluster):
    """Between EndTxns, with other tasks than the input has partitions; seen by Kafka's own tools."""
    scene = Scene(view, topic, tmp_path, shuffle=TASKS_AFTER_SHUFFLE)
    query_id = strike(scene, spark, "commit.between", "zombie")
    seen = Counter(row.value for row in cluster.console_consume(scene.output, max_messages=PARTITIONS * ROWS))
    assert seen == Counter(query.expected(value) for values in scene.values.values() for value in values)
    tool = "org.apache.kafka.tools.TransactionsCommand"
    listed = cluster.java_tool(tool, "--bootstrap-server", view.bootstrap_servers, "list").splitlines()
    of_query = [line for line in listed if query_id in line]
    assert of_query
    assert not [line for line in of_query if "Ongoing" in line]


@pytest.mark.chaos
@also_by("copy")
@pytest.mark.parametrize("point", ["prepare.wrote", "commit.decided"])
def test_a_kill_of_a_query_by_processing_time(point, view, topic, way, spark, tmp_path):
    """The query does not end by itself; its batches follow the clock."""
    scene = Scene(view, topic, tmp_path, way=way)
    scene.spec = replace(scene.spec, available_now=False)
    strike(scene, spark, point, "dead")


@pytest.mark.chaos
@pytest.mark.parametrize("point", ["prepare.prepared", "commit.decided"])
def test_a_restart_with_another_number_of_tasks(point, view, topic, spark, tmp_path):
    """Rows go to other tasks, and under other transactional ids; a decided micro-batch compares equal all the same."""
    scene = Scene(view, topic, tmp_path, shuffle=TASKS_AFTER_SHUFFLE)
    strike(scene, spark, point, "dead", restart=replace(scene.spec, shuffle=TASKS_AFTER_SHUFFLE + 2))


@pytest.mark.chaos
@pytest.mark.parametrize(("point", "variant"), EVERY)
def test_a_kill_at_every_point_loses_and_doubles_nothing(point, variant, view, topic, spark, tmp_path):
    """The whole set. A point without a way to reach it fails: it is in the table of points."""
    began = time.perf_counter()
    strike(Scene(view, topic, tmp_path), spark, point, variant)
    print(f"\n{point} {variant}: {time.perf_counter() - began:.1f} s")
