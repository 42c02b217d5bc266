"""A checkpoint on a local disk belongs to one process at a time, which writes its files without Spark's detours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs._demo import processes
from jobs.local_checkpoint import CHECKSUMS, FASTER, LOCK, MANAGER, LocalCheckpoint
from spark_eos.errors import CheckpointError
from tests.support.kafka_view import write
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[3]
SECONDS = 120
CONFIG = """\
kafka: {{bootstrap.servers: "{servers}"}}
source: {{topics: [{source}]}}
transform: {{sql: "SELECT value FROM input"}}
sink: {{topic: {target}}}
checkpoint: "{checkpoint}"
trigger: {trigger}
spark: {{spark.master: "local[2]", spark.ui.enabled: false, spark.driver.host: 127.0.0.1,
         spark.driver.bindAddress: 127.0.0.1}}
"""


@pytest.fixture
def fresh(spark: SparkSession) -> SparkSession:
    """A session with settings of its own, in the JVM of the others."""
    return spark.newSession()


@pytest.fixture
def config(view, topic, tmp_path: Path) -> dict[str, str]:
    return {
        "servers": view.bootstrap_servers,
        "source": topic(1),
        "target": topic(1),
        "checkpoint": str(tmp_path / "checkpoint"),
        "trigger": "{availableNow: true}",
    }


@contextmanager
def job(config: dict[str, str], folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The main job, and the file with what it says."""
    file, log = folder / "job.yaml", folder / "log"
    file.write_text(CONFIG.format(**config))
    command = [sys.executable, "-m", "jobs.consume_transform_produce", "--conf", str(file)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            cwd=ROOT,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            start_new_session=True,
        )
    try:
        yield process, log
    finally:
        if process.poll() is None:
            processes.kill(process.pid)
        process.communicate()


def test_a_job_leaves_a_checkpoint_alone_that_another_process_has(fresh, view, config, tmp_path):
    """It stops by name, says who has it, and has written nothing; when the other is done, it does its work."""
    write(view.bootstrap_servers, config["source"], [(0, str(i)) for i in range(20)], commit=True)
    with LocalCheckpoint() as first:
        first.take(fresh, config["checkpoint"])
        with job(config, tmp_path) as (second, log):
            code = second.wait(SECONDS)
        said = log.read_text()
        assert (code, "EOS_CHECKPOINT_IN_USE" in said) == (1, True), said
        assert f"process {os.getpid()} on " in said
        assert [file.name for file in Path(config["checkpoint"]).iterdir()] == [LOCK]
        assert view.values(config["target"]) == []
    with job(config, tmp_path) as (second, log):
        assert second.wait(SECONDS) == 0, log.read_text()
    assert Counter(view.values(config["target"])) == Counter(map(str, range(20)))
    logged = {file.name for file in Path(config["checkpoint"], "commits").iterdir()}
    batches = {name for name in logged if name.isdigit()}
    assert logged == batches | {f".{name}.crc" for name in batches}  # the file system's checksums, none of Spark's own


@pytest.mark.chaos
def test_a_job_waits_for_the_jvm_of_one_that_was_killed(view, config, tmp_path):
    """SIGKILL to the Python of a job in mid-work, and another start at once: each row is there once."""
    write(view.bootstrap_servers, config["source"], [(0, str(i)) for i in range(20)], commit=True)
    commits = Path(config["checkpoint"], "commits", "0")
    with job(config | {"trigger": "{processingTime: 0 seconds}"}, tmp_path) as (first, log):
        wait_for(lambda: commits.exists() or first.poll() is not None, log.read_text, SECONDS)
        os.kill(first.pid, signal.SIGKILL)
        write(view.bootstrap_servers, config["source"], [(0, str(i)) for i in range(20, 40)], commit=True)
        folder = tmp_path / "second"
        folder.mkdir()
        with job(config, folder) as (second, told):
            assert second.wait(SECONDS) == 0, told.read_text()
    assert Counter(view.values(config["target"])) == Counter(map(str, range(40)))


def test_the_same_jvm_does_not_take_a_checkpoint_twice(fresh, tmp_path):
    """Nor does it hold one when the block has ended."""
    place = tmp_path.as_uri() + "/a checkpoint"
    with LocalCheckpoint() as first:
        first.take(fresh, place, wait_s=0)
        with LocalCheckpoint() as second, pytest.raises(CheckpointError, match="EOS_CHECKPOINT_IN_USE"):
            second.take(fresh, place, wait_s=0)
    with LocalCheckpoint() as third:
        third.take(fresh, place, wait_s=0)
    assert {name: fresh.conf.get(name) for name in FASTER} == FASTER


def test_settings_of_the_user_stay(fresh, tmp_path):
    """Whoever names a manager, or wants Spark's checksums, gets them."""
    fresh.conf.set(CHECKSUMS, "true")
    with LocalCheckpoint() as taken:
        taken.take(fresh, str(tmp_path / "a"))
    assert (fresh.conf.get(MANAGER), fresh.conf.get(CHECKSUMS)) == (FASTER[MANAGER], "true")
    fresh.conf.set(MANAGER, "some.Manager")
    with LocalCheckpoint() as taken:
        taken.take(fresh, str(tmp_path / "b"))
    assert fresh.conf.get(MANAGER) == "some.Manager"


@pytest.mark.parametrize(
    "location",
    [
        "s3a://bucket/checkpoint",
        "hdfs://127.0.0.1:1/checkpoint",
        "hdfs://nowhere.invalid/checkpoint",
        "nosuch:/checkpoint",
    ],
)
def test_elsewhere_nothing_is_locked_or_set(location, fresh):
    """Other file systems rename as their own managers see to it."""
    with LocalCheckpoint() as taken:
        taken.take(fresh, location)
    assert fresh.conf.get(MANAGER, None) is None
