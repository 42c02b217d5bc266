"""What every job does around its own work, without Spark."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import cast
from unittest.mock import MagicMock, Mock

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

import spark_eos
from jobs.runner.job import JobCommand, JobContext, Plan, is_new, query_plan
from jobs.runner.lines import BatchLines
from jobs.runner.models import QueryJob
from jobs.runner.query import Stop
from spark_eos.errors import stop

SPARK = cast(SparkSession, None)


def test_a_job_that_is_stopped_in_the_pause_before_its_first_query_has_started_is_done(tmp_path: Path):
    """As where the cluster is away when the query is to be started, and the machine is shut down then."""
    failed = stop("EOS_KAFKA_UNREACHABLE.coordinator", who="b-0", waited_s=1, why="")
    asked = Mock(side_effect=[False, True])  # when the start has failed, and in the pause
    config = QueryJob.model_validate({"checkpoint": str(tmp_path)})
    plan = query_plan(config, "a → b", [], Mock(side_effect=failed), "earliest")
    plan.work(JobContext(SPARK, Mock(asked=asked), BatchLines()))


@pytest.fixture
def ended_by(tmp_path: Path) -> Callable[..., int]:
    """``ended_by(raised, …)``: the exit code of a job whose plan raises this; ``ended_by(work=…)``: of one that does
    this work."""
    file = tmp_path / "job.yaml"
    file.write_text("checkpoint: /checkpoint\n")

    def ended_by(
        raised: BaseException | None = None, *options: str, work: Callable[[JobContext], None] = lambda context: None
    ) -> int:
        plan = Mock(side_effect=raised, return_value=Plan("a job", [], {}, work))
        return JobCommand("job", "A job.", QueryJob, plan).main(["--conf", str(file), *options])

    return ended_by


@pytest.mark.parametrize(
    ("number", "code", "name"),
    [
        (errno.ENOENT, 1, "EOS_SYSTEM_REFUSES"),
        (errno.ENOSPC, 75, "EOS_SYSTEM_FULL"),
        (errno.EIO, 75, "EOS_SYSTEM_UNREACHABLE"),
    ],
)
def test_what_the_system_refuses_is_an_error_by_name(number, code, name, ended_by, capfd):
    """A SPARK_HOME that is gone, which somebody has to mend, a machine that has no room now, or a server of files that
    is away. tests/unit/spark has the other numbers."""
    refused = OSError(number, os.strerror(number), "/spark/bin/spark-submit")
    assert ended_by(refused) == code
    first, last = capfd.readouterr().err.splitlines()
    assert first.startswith(f"failed: [{name}] ") and f"{os.strerror(number)}: /spark/bin/spark-submit" in first
    assert f"(exit code {code})" in last

    assert ended_by(refused, "--verbose") == code
    assert "Traceback" in capfd.readouterr().err


def test_a_job_without_a_java_that_can_run_spark_says_so(ended_by, java, environ, tmp_path, capfd):
    """Before it starts anything, by the words of the development cluster: Spark's own scripts end by an error of bash.
    `spark_eos.reason` says it of Spark's error to programs that start their session themselves."""
    environ(SPARK_CONF_DIR=tmp_path)
    old = java("11.0.2")
    assert ended_by() == 1
    said = capfd.readouterr().err
    assert "failed: [EOS_JAVA_NOT_FOUND] " in said and f"{old} is Java 11" in said and "starting Spark" not in said
    gone = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    assert spark_eos.reason(gone).condition == "EOS_JAVA_NOT_FOUND"
    java("17.0.2")
    assert spark_eos.reason(gone) is None


@pytest.mark.parametrize(("before", "code"), [(False, 1), (True, 0)])
def test_a_failure_is_told_if_the_job_is_stopped_while_it_ends(before, code, ended_by, java, monkeypatch, capfd):
    """As where a machine is shut down just then; an error that a stop has caused is none."""
    stops: list[Stop] = []
    spark = MagicMock(stop=lambda: before or stops[0].ask(signal.SIGTERM))
    monkeypatch.setattr("jobs.runner.session.start", lambda *_, **__: spark)

    def work(context: JobContext) -> None:
        stops.append(context.stop)
        if before:
            context.stop.ask(signal.SIGTERM)
        raise stop("EOS_JAVA_NOT_FOUND", why="")

    java("17.0.2")
    assert ended_by(work=work) == code
    assert ("failed: " in capfd.readouterr().err) is bool(code)


@pytest.mark.parametrize("code", [0, None, "of the package"])
def test_a_program_that_the_job_calls_does_not_end_it_without_a_word(code, ended_by, capfd):
    """A thread that is left by `sys.exit` prints nothing."""
    assert ended_by(SystemExit(code)) == 1
    assert "SystemExit" in capfd.readouterr().err


@pytest.mark.parametrize("default", ["file:///", "hdfs://nowhere:1"])
def test_the_file_system_of_the_section_spark_says_whether_a_checkpoint_is_local(default, tmp_path):
    """Else a folder of this disk would be taken for it, which may not even be writable."""
    spark = {"spark.hadoop.fs.defaultFS": default}
    config = QueryJob.model_validate({"checkpoint": str(tmp_path), "spark": spark})
    assert is_new(config) is (True if default == "file:///" else None)
