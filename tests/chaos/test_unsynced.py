"""The machine dies with a query: what was written to the checkpoint last was never on its disk.

Spark renames the files of its logs and does not flush them, so the newest may be gone, or empty, of which
tests/integration/sink/test_damaged_checkpoints.py has the cases. The hints of the error are followed to the letter, and
the query goes on.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

import spark_eos
from tests.support.kills import query
from tests.support.kills.killed_program import running
from tests.support.kills.scene import Scene, in_batch_2
from tests.support.queries.data_paths import also_by
from tests.support.waiting import TIMEOUT

pytestmark = pytest.mark.chaos


def kill(scene: Scene, point: str) -> None:
    """The query dies in micro-batch 2, before its decision or after it."""
    with running(scene.spec, in_batch_2(point), scene.folder) as victim:
        victim.wait_at(point)
        victim.kill()


def lose(scene: Scene, log: str) -> None:
    """The newest file of a log, and its checksum."""
    folder = Path(scene.spec.checkpoint, log)
    newest = max(folder.glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (newest, folder / f".{newest.name}.crc"):
        file.unlink(missing_ok=True)


def stopped(scene: Scene, spark) -> spark_eos.Reason:
    """Why the query stops."""
    with pytest.raises(StreamingQueryException) as caught:
        query.start(spark, scene.spec).awaitTermination(TIMEOUT)
    found = spark_eos.reason(caught.value)
    assert found is not None, f"an error without a name: {caught.value}"
    return found


@also_by("transform", "mirror")
def test_the_newest_files_of_both_logs_are_gone(view, topic, way, spark, tmp_path):
    """As if the directory had not been written either: Spark plans the last micro-batch but one anew."""
    scene = Scene(view, topic, tmp_path, way=way)
    with scene.recorded():
        kill(scene, "commit.verified")
        for log in ("offsets", "commits"):
            lose(scene, log)
        scene.check(scene.drain(spark))


@also_by("copy", "transform")
def test_a_decided_micro_batch_that_is_planned_otherwise(view, topic, way, spark, tmp_path):
    """More rows are there, so that it would be another one: it stops. A new checkpoint goes on, as the error says."""
    scene = Scene(view, topic, tmp_path, way=way)
    with scene.recorded():
        kill(scene, "commit.decided")
        lose(scene, "offsets")
        scene.spec = replace(scene.spec, rows_per_batch=scene.spec.rows_per_batch + 8)
        found = stopped(scene, spark)
        assert found.condition == "EOS_REPLAY_DIVERGED"
        assert "decided rows are visible" in found.hint
        scene.check(scene.go_on_from_the_group(spark))
