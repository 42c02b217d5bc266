"""A query whose checkpoint is on an S3 server is killed, and goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import HadoopSettings
from tests.support.kills.killed_program import running
from tests.support.kills.scene import PARTITIONS, Scene, in_batch_2
from tests.support.queries.data_paths import also_by
from tests.support.servers.object_store import SECRET_KEY, object_store

pytestmark = pytest.mark.chaos


@pytest.fixture
def store(tmp_path):
    with object_store(tmp_path) as store:
        yield store


@also_by("copy")
def test_a_query_is_killed_and_goes_on_with_its_checkpoint_in_an_object_store(store, view, topic, way, tmp_path):
    """Killed between the decision and the end of its transactions. It goes on with the checkpoint as a plain path, on
    that store as the default file system. Every row is there once, and the group has the offsets."""
    scene = Scene(view, topic, tmp_path, way=way, conf=store.spark_conf())
    scene.spec = replace(scene.spec, checkpoint=f"s3a://{store.bucket}/of/{scene.output}")
    with scene.recorded():
        with running(scene.spec, in_batch_2("commit.decided"), tmp_path) as victim:
            victim.wait_at("commit.decided")
            victim.kill()
        query_id = Checkpoint(scene.spec.checkpoint, HadoopSettings(store.settings)).query_id()
        assert query_id is not None
        assert len(view.open_transactions(query_id)) == PARTITIONS
        there = {"spark.hadoop.fs.defaultFS": f"s3a://{store.bucket}"}
        scene.spec = replace(scene.spec, checkpoint=f"/of/{scene.output}", conf=scene.spec.conf | there)
        (tmp_path / "again").mkdir()
        with running(scene.spec, "", tmp_path / "again") as again:
            log = again.wait_for_end(0)
        assert SECRET_KEY not in log
        scene.check(query_id)
