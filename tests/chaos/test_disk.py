"""The disk of the checkpoint is full: a real one, small, made and mounted by the test."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from tests.support.judges.kafka_view import open_view
from tests.support.kills import query
from tests.support.kills.scene import Course, Scene, in_batch_2, tell, topics_of
from tests.support.queries.data_paths import also_by
from tests.support.spark.session_faults import armed
from tests.support.waiting import wait_for

pytestmark = pytest.mark.chaos

FULL = "No space left on device"
PAGE = 4096


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no 'mount' here")
    if done.returncode:
        pytest.skip(f"may not mount a file system here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Until not a byte fits."""
    with (disk / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(PAGE))


@also_by("copy", "transform", "mirror")
@pytest.mark.parametrize("point", ["prepare.wrote", "commit.decided"])
def test_a_checkpoint_on_a_full_disk(point, cluster, way, spark, disk, tmp_path):
    """Spark cannot note that the micro-batch is done, and stops. When there is room, it is replayed: nothing is written
    twice, as it was decided."""
    with open_view(cluster.bootstrap_servers) as view:
        scene = Scene(view, topics_of(cluster), tmp_path, way=way, checkpoint=str(disk / "checkpoint"))
        with scene.recorded():
            with armed(spark, in_batch_2(point), tmp_path / "faults") as fault:
                started = query.start(spark, scene.spec)
                try:
                    fault.wait()
                    scene.note()
                    fill(disk)
                    fault.release()
                    wait_for(lambda: not started.isActive, "the end of the query")
                finally:
                    started.stop()
            check_when_there_is_room(scene, spark, disk, started)


@also_by("copy", "transform", "mirror")
def test_a_disk_that_is_full_before_a_batch_is_planned(cluster, way, spark, disk, tmp_path):
    """Spark cannot note where the micro-batch ends, so nothing of it is written."""
    with open_view(cluster.bootstrap_servers) as view:
        checkpoint = disk / "checkpoint"
        scene = Scene(view, topics_of(cluster), tmp_path, way=way, checkpoint=str(checkpoint), available_now=False)
        with scene.recorded():
            started = query.start(spark, scene.spec)
            try:
                scene.wait_for_the_end_of_the_input(started)
                wait_for(lambda: numbers(checkpoint / "offsets") == numbers(checkpoint / "commits"), "the commit log")
                fill(disk)
                scene.note()
                scene.feed()
                wait_for(lambda: not started.isActive, "the end of the query")
            finally:
                started.stop()
            assert set(view.values(scene.output, committed=False)) == {
                scene.spec.expected(value) for values in scene.values.values() for value in values[:-1]
            }
            check_when_there_is_room(scene, spark, disk, started)


def check_when_there_is_room(scene: Scene, spark, disk: Path, ended: StreamingQuery) -> None:
    """The query has ended by an error that says so, and after which a restart helps: it goes on."""
    found = spark_eos.reason(ended.exception())
    assert (found.condition, found.restart_helps) == ("EOS_SYSTEM_FULL", True)
    assert FULL in found.message
    (disk / "filler").unlink()
    since = time.time()
    scene.drain(spark)
    scene.check(ended.id)
    assert scene.rewritten() == 0
    tell(Course("EOS_SYSTEM_FULL", scene.went_on(since), scene.rewritten()))


def numbers(log: Path) -> set[str]:
    """The micro-batches in one of the checkpoint's logs."""
    return {file.name for file in log.glob("[0-9]*")}
