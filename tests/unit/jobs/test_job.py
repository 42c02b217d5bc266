"""What every job does around its own work, without Spark."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, cast
from unittest.mock import MagicMock

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from jobs.runner.job import JobCommand, JobContext, Plan, carry_out, is_new, query_plan
from jobs.runner.lines import BatchLines
from jobs.runner.models import QueryJob
from jobs.runner.query import Stop
from spark_eos.errors import stop
from spark_eos.tools.devcluster.java import _ask

SPARK = cast(SparkSession, None)


def test_a_job_that_is_stopped_in_the_pause_before_its_first_query_has_started_is_done(tmp_path: Path):
    """As where the cluster is away when the query is to be started, and the machine is shut down then."""
    asked = Stop()
    asked.running = True

    def start(spark: SparkSession) -> StreamingQuery:
        threading.Timer(0.05, asked.ask, [signal.SIGTERM]).start()
        raise stop("EOS_KAFKA_UNREACHABLE.coordinator", who="b-0", waited_s=1, why="")

    config = QueryJob.model_validate({"checkpoint": str(tmp_path)})
    plan = query_plan(config, "a → b", [], start, "earliest")
    plan.work(JobContext(SPARK, asked, BatchLines()))


def ended_by(carry_out: Callable[..., None], monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str) -> int:
    """The exit code of a job that ends by what this raises."""
    file = folder / "job.yaml"
    file.write_text("checkpoint: /checkpoint\n")
    monkeypatch.setattr("jobs.runner.job.carry_out", carry_out)
    command = JobCommand("job", "A job.", QueryJob, lambda config, args: Plan("a job", [], {}, lambda context: None))
    return command.main(["--conf", str(file), *options])


@pytest.mark.parametrize(
    ("number", "code", "name"),
    [
        (errno.ENOENT, 1, "EOS_SYSTEM_REFUSES"),
        (errno.ENOSPC, 75, "EOS_SYSTEM_FULL"),
        (errno.EIO, 75, "EOS_SYSTEM_UNREACHABLE"),
        (errno.ECONNREFUSED, 75, "EOS_SYSTEM_UNREACHABLE"),
    ],
)
def test_what_the_system_refuses_is_an_error_by_name(number, code, name, tmp_path, monkeypatch, capfd):
    """A SPARK_HOME that is gone, which somebody has to mend, a machine that has no room now, or a server of files that
    is away. tests/unit/spark has the other numbers."""

    def refused(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number), "/spark/bin/spark-submit")

    assert ended_by(refused, monkeypatch, tmp_path) == code
    first, last = capfd.readouterr().err.splitlines()
    assert first.startswith(f"failed: [{name}] ") and f"{os.strerror(number)}: /spark/bin/spark-submit" in first
    assert f"(exit code {code})" in last

    assert ended_by(refused, monkeypatch, tmp_path, "--verbose") == code
    assert "in refused\n" in capfd.readouterr().err


def test_a_job_without_a_java_that_can_run_spark_says_so(tmp_path, monkeypatch, capfd):
    """Before it starts anything, by the words of the development cluster: Spark's own scripts end by an error of bash.
    `spark_eos.reason` says it of Spark's error to programs that start their session themselves."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    assert ended_by(carry_out, monkeypatch, tmp_path) == 1
    said = capfd.readouterr().err
    assert (
        "failed: [EOS_JAVA_NOT_FOUND] " in said and f"{java} is Java 11" in said and "Spark" not in said.splitlines()[0]
    )
    gone = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    assert spark_eos.reason(gone).condition == "EOS_JAVA_NOT_FOUND"
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.2\"' >&2\n")
    _ask.cache_clear()
    assert spark_eos.reason(gone) is None


@pytest.mark.parametrize(("before", "code"), [(False, 1), (True, 0)])
def test_a_failure_is_told_if_the_job_is_stopped_while_it_ends(before, code, tmp_path, monkeypatch, capfd):
    """As where a machine is shut down just then; an error that a stop has caused is none."""

    def work(context: JobContext) -> None:
        if before:
            context.stop.ask(signal.SIGTERM)
        raise stop("EOS_JAVA_NOT_FOUND", why="")

    def of_plan(plan: Plan, asked: Stop, **_: object) -> None:
        spark = MagicMock(stop=lambda: before or asked.ask(signal.SIGTERM))
        for name, fake in {"check": lambda plan: None, "_session": lambda *_: spark, "JvmStderr": MagicMock()}.items():
            monkeypatch.setattr(f"jobs.runner.job.{name}", fake)
        carry_out(Plan("a job", [], {}, work), asked, name="job")

    assert ended_by(of_plan, monkeypatch, tmp_path) == code
    assert ("failed: " in capfd.readouterr().err) is bool(code)


@pytest.mark.parametrize("default", ["file:///", "hdfs://nowhere:1"])
def test_the_file_system_of_the_section_spark_says_whether_a_checkpoint_is_local(default, tmp_path):
    """Else a folder of this disk would be taken for it, which may not even be writable."""
    spark = {"spark.hadoop.fs.defaultFS": default}
    config = QueryJob.model_validate({"checkpoint": str(tmp_path), "spark": spark})
    assert is_new(config) is (True if default == "file:///" else None)


@pytest.mark.parametrize("code", [0, None, "of the package"])
def test_a_program_that_the_job_calls_does_not_end_it_without_a_word(code, tmp_path, monkeypatch, capfd):
    """A thread that is left by `sys.exit` prints nothing."""
    assert ended_by(lambda *_, **__: sys.exit(code), monkeypatch, tmp_path) == 1
    assert "SystemExit" in capfd.readouterr().err
