"""Executors in processes and on hosts of their own: they die, lose shuffle files, or are too slow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.judges.kafka_view import KafkaView
from tests.support.kills import query
from tests.support.kills.killed_program import Killed, running
from tests.support.kills.scene import PARTITIONS, each_is_there_once, fed_query, nothing_is_open
from tests.support.queries.data_paths import also_by
from tests.support.spark.standalone import SPECULATION, Standalone, standalone
from tests.support.waiting import wait_for

pytestmark = pytest.mark.chaos

IN_BATCH_2 = PARTITIONS + 2  # the n-th time that a task writes: micro-batch 0 is empty


@pytest.fixture
def spec(view, topic, way, tmp_path) -> Iterator[query.Spec]:
    with fed_query(view, topic, tmp_path, way, whole_parts=False) as made:  # one of the tests shuffles
        yield made


def check(view: KafkaView, spec: query.Spec, query_id: str) -> None:
    """Every row once; those that nobody waits for any more are aborted, and visible to nobody."""
    each_is_there_once(view, spec)
    assert view.group(spec.group, spec.input) == view.ends(spec.input)
    nothing_is_open(view, spec, query_id)


def held_host(run: Killed, cluster: Standalone, point: str) -> str:
    """The host of the task that has come to the point and is held there."""
    return cluster.host_of(run.wait_at(point, lambda: cluster.executors().values()).pid)


@also_by("copy", "transform")
@pytest.mark.parametrize("point", ["prepare.wrote", "prepare.prepared"])
def test_an_executor_that_dies_in_mid_write(point, view, spec, tmp_path: Path):
    """Its tasks are tried again elsewhere, under names of their own; what it had open is aborted by the commit."""
    with (
        standalone(tmp_path / "spark") as cluster,
        running(replace(spec, master=cluster.master), f"{point}=hold@{IN_BATCH_2}", tmp_path) as run,
    ):
        cluster.kill(held_host(run, cluster, point))
        run.wait_for_end(0)
        assert "ExecutorLostFailure" in run.log(None)
        check(view, spec, run.query_id)


def test_a_stage_that_is_resubmitted(view, spec, tmp_path: Path):
    """The shuffle's files are gone with an executor, while a task that had read them is in the middle of its rows."""
    tasks = 3
    faults = f"prepare.begun=hold@{tasks + 1}, prepare.wrote=hold@{tasks + 1}"
    with (
        standalone(tmp_path / "spark") as cluster,
        running(replace(spec, master=cluster.master, shuffle=tasks), faults, tmp_path) as run,
    ):
        stays, dies = (held_host(run, cluster, point) for point in ("prepare.begun", "prepare.wrote"))
        assert stays != dies
        cluster.kill(dies)
        wait_for(lambda: "FetchFailed" in run.log(None), "a task that misses the files")
        run.release("prepare.begun")
        run.wait_for_end(0)
        check(view, spec, run.query_id)


@also_by("copy", "transform")
def test_a_slow_task_is_overtaken_by_its_copy(view, spec, tmp_path: Path):
    """Speculation: two attempts of one task write at once; one is committed."""
    point = "prepare.wrote"
    with (
        standalone(tmp_path / "spark", cores=2) as cluster,
        running(replace(spec, master=cluster.master, conf=SPECULATION), f"{point}=hold@{IN_BATCH_2}", tmp_path) as run,
    ):
        run.wait_at(point, lambda: cluster.executors().values())
        run.wait_for_end(0)
        check(view, spec, run.query_id)
        copies = [name for name in view.transactions(run.query_id) if name.endswith("-1") and name.count("-") > 8]
        assert copies, "no task was tried a second time"
