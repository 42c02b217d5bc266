"""What a job starts Spark's JVM with; no JVM is started here."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest.mock import Mock

import pytest

from jobs.runner import session
from tests.support.judges.conditions import raises

SETTINGS = {"spark.master": "local[1]", "spark.hadoop.fs.s3a.secret.key": "TOP SECRET"}
IN_FILE = "spark.master=local\\u005b1\\u005d\nspark.hadoop.fs.s3a.secret.key=TOP\\u0020SECRET\n"


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """As in a shell, with a temporary folder of its own."""
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setenv("SPARK_HOME", "/spark")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield
    assert list(tmp_path.iterdir()) == []


def launched(settings: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[str, list[str]]:
    """What two programs, one after the other, read as the settings, as Spark's launcher and its JVM do; and the files
    that a job would leave that is killed meanwhile."""
    read: list[str] = []
    left: list[str] = []

    def launch(conf: object, popen: object) -> None:
        option, file, *_ = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        assert option == "--properties-file"
        for _ in range(2):
            read.append(subprocess.run(["cat", file], capture_output=True, text=True, check=True).stdout)
        left.extend(found.name for found in tmp_path.rglob("*") if found.is_file())

    monkeypatch.setattr(session, "launch_gateway", launch)
    session._launch(settings, verbose=False, stderr=None)
    assert read[0] == read[1]
    return read[0], left


def test_settings_are_in_no_file_of_a_disk(monkeypatch, tmp_path):
    """A job that is killed while its JVM starts leaves none of its secrets."""
    assert launched(SETTINGS, monkeypatch, tmp_path) == (IN_FILE, [])


def test_where_there_are_no_files_in_memory_settings_are_in_one_that_is_deleted(monkeypatch, tmp_path):
    """As on macOS, and where the system refuses them: by vm.memfd_noexec=2, or in a sandbox."""
    monkeypatch.setattr(os, "memfd_create", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
    assert launched(SETTINGS, monkeypatch, tmp_path) == (IN_FILE, ["spark.conf"])
    monkeypatch.delattr(os, "memfd_create")
    assert launched(SETTINGS, monkeypatch, tmp_path) == (IN_FILE, ["spark.conf"])


def test_a_second_file_of_settings_is_refused(monkeypatch):
    """spark-submit would read only one of the two, and say nothing."""
    given = "--properties-file mine.conf pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given)
    with raises("EOS_CONFIG_INVALID_VALUE.submit_arguments"):
        session._launch(SETTINGS, verbose=False, stderr=None)
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == given


@pytest.mark.parametrize("given", [None, "-Xss4m -Da=b"])
def test_the_logs_settings_reach_the_jvm_beside_the_users_options(given, monkeypatch):
    """By a variable that comes before all of Spark's settings on the command line. `spark.driver.extraJavaOptions`, set
    by a job, would hide what spark-defaults.conf has under that name."""
    if given is not None:
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", given)
    else:
        monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    seen: list[str | None] = []
    monkeypatch.setattr(session, "launch_gateway", lambda *_: seen.append(os.environ.get("SPARK_SUBMIT_OPTS")))
    for verbose in (False, True):
        settings = session._with_defaults({"spark.master": "local[1]"}, verbose)
        assert "spark.driver.extraJavaOptions" not in settings
        session._launch(settings, verbose=verbose, stderr=None)
    quiet, loud = seen
    assert quiet is not None and loud == given == os.environ.get("SPARK_SUBMIT_OPTS")
    before, _, own = quiet.rpartition("-Dlog4j2.configurationFile=file:///")
    assert (before.strip() or None, Path(f"/{own}").is_file()) == (given, True)
