"""What a job starts Spark's JVM with; a program that notes it stands for Spark's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError

from jobs.runner import session
from tests.support.judges.conditions import raises

SETTINGS = {"spark.master": "local[1]", "spark.hadoop.fs.s3a.secret.key": "TOP SECRET"}
IN_FILE = {"spark.master=local\\u005b1\\u005d", "spark.hadoop.fs.s3a.secret.key=TOP\\u0020SECRET"}
#: Reads the file of settings twice, as Spark's launcher and its JVM do, and ends as a JVM that cannot start.
SPARK_SUBMIT = """#!/bin/sh
cd '{folder}'
test "$1" = --properties-file && cat "$2" > once && cat "$2" > twice
find temporary -type f -exec basename '{{}}' ';' > files
printenv SPARK_SUBMIT_OPTS > options
exit 1
"""


@dataclass
class Start:
    """``settings``: lines of their file; ``files``: those that a job leaves which is killed now; ``options``: of the
    JVM."""

    settings: list[str]
    files: list[str]
    options: str


@pytest.fixture
def started(environ, temporary_files_in, tmp_path: Path) -> Iterator[Callable[..., Start]]:
    """``started(settings, verbose, NAME="value")``: a session, in a shell with this variable. Nothing stays of it."""
    program, temporary = tmp_path / "bin" / "spark-submit", tmp_path / "temporary"
    for folder in (program.parent, temporary):
        folder.mkdir()
    program.write_text(SPARK_SUBMIT.format(folder=tmp_path))
    program.chmod(0o700)
    temporary_files_in(temporary)
    environ(SPARK_HOME=tmp_path, PYSPARK_SUBMIT_ARGS=None, SPARK_SUBMIT_OPTS=None)
    environ(PYSPARK_PYTHON="another")  # so that no server of forks starts

    def started(settings: dict[str, str], verbose: bool = False, **variables: str) -> Start:
        environ(**variables)
        with pytest.raises(PySparkRuntimeError, match="JAVA_GATEWAY_EXITED"):
            session.start("job", settings, verbose=verbose)
        once, twice, files, options = (
            (tmp_path / name).read_text().splitlines() for name in ("once", "twice", "files", "options")
        )
        assert once == twice
        return Start(once, files, " ".join(options))

    yield started
    assert list(temporary.iterdir()) == []


def test_settings_are_in_no_file_of_a_disk(started):
    """A job that is killed while its JVM starts leaves none of its secrets."""
    start = started(SETTINGS)
    assert set(start.settings) >= IN_FILE and start.files == []


@pytest.mark.usefixtures("no_files_in_memory")
def test_where_there_are_no_files_in_memory_settings_are_in_one_that_is_deleted(started):
    """What a job leaves that is killed while its JVM starts."""
    start = started(SETTINGS)
    assert set(start.settings) >= IN_FILE and start.files == ["spark.conf"]


def test_a_second_file_of_settings_is_refused(started):
    """spark-submit would read only one of the two, and say nothing."""
    given = "--properties-file mine.conf pyspark-shell"
    with raises("EOS_CONFIG_INVALID_VALUE.submit_arguments"):
        started(SETTINGS, PYSPARK_SUBMIT_ARGS=given)
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == given


@pytest.mark.parametrize("given", [{}, {"SPARK_SUBMIT_OPTS": "-Xss4m -Da=b"}], ids=["none", "some"])
def test_the_logs_settings_reach_the_jvm_beside_the_users_options(given, started):
    """By a variable that comes before all of Spark's settings on the command line. `spark.driver.extraJavaOptions`, set
    by a job, would hide what spark-defaults.conf has under that name."""
    theirs = given.get("SPARK_SUBMIT_OPTS", "")
    quiet, loud = started(SETTINGS, **given), started(SETTINGS, verbose=True, **given)
    assert (loud.options, os.environ.get("SPARK_SUBMIT_OPTS", "")) == (theirs, theirs)
    before, _, own = quiet.options.rpartition("-Dlog4j2.configurationFile=file:///")
    assert (before.strip(), Path(f"/{own}").is_file()) == (theirs, True)
    assert "spark.driver.extraJavaOptions" not in "".join(quiet.settings + loud.settings)
