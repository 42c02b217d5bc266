"""A checkpoint on a local disk belongs to one process at a time, which writes its files without Spark's detours."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import spark_eos
from jobs.runner.local_checkpoint import CHECKSUMS, FASTER, LOCK, MANAGER, LocalCheckpoint
from spark_eos.errors import CheckpointError
from tests.support.kills.job_program import log_of, started
from tests.support.waiting import PROGRAM_S, wait_for

NAME = "consume_transform_produce"
COPY = "sql: SELECT value FROM input"


@pytest.fixture
def fresh(spark: SparkSession) -> SparkSession:
    """A session with settings of its own, in the JVM of the others."""
    return spark.newSession()


def test_a_job_leaves_a_checkpoint_alone_that_another_process_has(fresh, topics_job, tmp_path):
    """It stops by name, says who has it, and has written nothing, also when a second one in that process has been
    refused before."""
    topics_job.produce(*map(str, range(20)))
    config, checkpoint = topics_job.config(COPY), topics_job.checkpoint
    with LocalCheckpoint() as first:
        first.take(fresh, str(checkpoint))
        refused(fresh, str(checkpoint))
        with started(NAME, config, tmp_path) as second:
            code = second.wait(PROGRAM_S)
        said = log_of(NAME, tmp_path).read_text()
        assert (code, "EOS_CHECKPOINT_IN_USE" in said, "starting Spark" in said) == (1, True, False), said
        assert f"process {os.getpid()} on " in said
        assert [file.name for file in checkpoint.iterdir()] == [LOCK]
        assert topics_job.output() == []


@pytest.mark.chaos
def test_a_job_waits_for_the_jvm_of_one_that_was_killed(topics_job, tmp_path):
    """SIGKILL to the Python of a job in mid-work, and another start at once: each row is there once."""
    topics_job.produce(*map(str, range(20)))
    commits, log = topics_job.checkpoint / "commits" / "0", log_of(NAME, tmp_path)
    with started(NAME, topics_job.config(COPY, trigger="0 seconds"), tmp_path) as first:
        wait_for(lambda: commits.exists() or first.poll() is not None, log.read_text, PROGRAM_S)
        assert first.poll() is None, log.read_text()
        os.kill(first.pid, signal.SIGKILL)
        topics_job.produce(*map(str, range(20, 40)))
        with started(NAME, topics_job.config(COPY), tmp_path) as second:
            assert second.wait(PROGRAM_S) == 0, log.read_text()
    assert topics_job.output() == sorted(map(str, range(40)))


#: Of a process of its own: it takes the lock, says so, and holds it until its input ends.
HOLDER = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("locked", flush=True)
    except OSError:
        print("refused", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(folder: Path) -> Iterator[str]:
    """Whether another process gets the lock, which it then holds during the block."""
    command = [sys.executable, "-c", HOLDER, str(folder / LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate(timeout=PROGRAM_S)


def looked(folder: Path) -> str:
    with another_process(folder) as found:
        return found


def refused(spark: SparkSession, place: str) -> None:
    with LocalCheckpoint() as second, pytest.raises(CheckpointError, match="EOS_CHECKPOINT_IN_USE"):
        second.take(spark, place, wait_s=0)


def test_the_same_jvm_does_not_take_a_checkpoint_twice(fresh, tmp_path):
    """By none of its names. Those that are refused do not cost the first one its lock, and it has none when its block
    has ended."""
    place, folder = tmp_path.as_uri() + "/a checkpoint", tmp_path / "a checkpoint"
    with LocalCheckpoint() as first:
        first.take(fresh, place, wait_s=0)
        (tmp_path / "another name").symlink_to(folder)
        for name in (place, str(folder), str(tmp_path / "another name"), f"{tmp_path}/../{tmp_path.name}/a checkpoint"):
            refused(fresh, name)
            assert looked(folder) == "refused", name
    assert looked(folder) == "locked"
    with LocalCheckpoint() as third:
        third.take(fresh, place, wait_s=0)
        assert looked(folder) == "refused"
    assert {name: fresh.conf.get(name) for name in FASTER} == FASTER


def counts(spark: SparkSession, checkpoint: Path) -> None:
    """Run a query with state, of no more than there is now."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().groupBy().count()
    writer = rows.writeStream.format("noop").outputMode("complete").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("others", [(), ("state/0",)])
def test_what_is_left_of_the_first_file_of_the_offset_log(others, fresh, tmp_path):
    """Spark starts no query with state beside it; the error has a name. A job removes it, where there is nothing else:
    then nothing was planned yet."""
    folder = tmp_path / "checkpoint"
    drafts = {"offsets/.0.0b5a2f51-7c0e-4f0c-8dd2-1a0e8c6f3d55.tmp", "offsets/..0.0b5a.tmp.crc"}
    for name in (*drafts, *others):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    with pytest.raises(StreamingQueryException) as caught:
        counts(fresh, folder)
    found = spark_eos.reason(caught.value)
    assert (found.condition, found.restart_helps) == ("EOS_CHECKPOINT_DAMAGED", False)
    assert f"{folder}/offsets of the checkpoint" in found.message
    with LocalCheckpoint() as taken:
        taken.take(fresh, str(folder))
        assert {name for name in (*drafts, *others) if (folder / name).exists()} == {
            *(drafts if others else ()),
            *others,
        }
        if not others:
            counts(fresh, folder)
            assert (folder / "commits" / "0").exists()


def test_a_folder_that_was_made_again_is_another_one(fresh, tmp_path):
    """Its lock is taken anew, and the end of the first one does not cost the second one its lock."""
    folder = tmp_path / "checkpoint"
    with LocalCheckpoint() as second:
        with LocalCheckpoint() as first:
            first.take(fresh, str(folder), wait_s=0)
            shutil.rmtree(folder)
            second.take(fresh, str(folder), wait_s=0)
            assert looked(folder) == "refused"
        assert looked(folder) == "refused"
    assert looked(folder) == "locked"


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
    ["s3a://bucket/checkpoint", "nosuch:/checkpoint"],
)
def test_elsewhere_nothing_is_locked_or_set(location, fresh):
    """Other file systems rename as their own managers see to it."""
    with LocalCheckpoint() as taken:
        taken.take(fresh, location)
    assert fresh.conf.get(MANAGER, None) is None
