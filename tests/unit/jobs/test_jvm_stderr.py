"""What the JVM of a job writes to stderr, and what of it a user sees."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys

import pytest

from jobs.runner.jvm_stderr import JvmStderr
from tests.support.waiting import TIMEOUT, wait_for

LOST = """\
Traceback (most recent call last):
  File "daemon.py", line 262, in manager
    code = worker(sock, authenticated)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^
BrokenPipeError: [Errno 32] Broken pipe
"""
OTHER = LOST.replace("BrokenPipeError: [Errno 32] Broken pipe", "ValueError: of its own")
MODULES = "WARNING: Using incubator modules: jdk.incubator.vector\n"
#: Ivy's report where it has to download, and where it has all.
REPORT = """\
:: loading settings :: url = jar:file:/spark/jars/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml
Ivy Default Cache set to: /home/somebody/.ivy2.5.2/cache
:: resolving dependencies :: org.apache.spark#spark-submit-parent-1;1.0
\tfound io.delta#delta-spark_4.2_2.13;4.4.0 in central
downloading https://repo1.maven.org/maven2/io/delta/delta-storage/4.4.0/delta-storage-4.4.0.jar ...
\t[SUCCESSFUL ] io.delta#delta-storage;4.4.0!delta-storage.jar (123ms)
:: resolution report :: resolve 1000ms :: artifacts dl 1000ms
\t|                  |            modules            ||   artifacts   |
:: retrieving :: org.apache.spark#spark-submit-parent-1
\t3 artifacts copied, 0 already retrieved (7000kB/30ms)
"""
QUIET_REPORT = "".join(
    line for line in REPORT.splitlines(keepends=True) if not line.startswith(("downloading", "\t[SUCC"))
)
DOWNLOADS = "Spark downloads spark.jars.packages, once: it keeps them in /home/somebody/.ivy2.5.2/cache\n"
PROBLEM = """\
:: problems summary ::
:::: WARNINGS
\t\tmodule not found: io.delta#delta-spark_4.2_2.13;9.9.9

:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
"""
FAILED = (
    REPORT[: REPORT.index("\tfound")]
    + PROBLEM
    + 'Exception in thread "main" java.lang.RuntimeException: [unresolved dependency]\n\tat org.apache.spark\n'
)
CUT = "Traceback (most recent call last):\n  File"
JVM = 'Exception in thread "stream": SparkException\n\tat org.apache.spark\n'


def seen(capfd: pytest.CaptureFixture[str], *texts: str, stopping: bool = False) -> str:
    """What stands on stderr at the end, where a process has written these pieces one after the other."""
    with JvmStderr(lambda: stopping) as jvm:
        code = "import os, sys\nfor piece in sys.argv[1:]: os.write(2, piece.encode())"
        subprocess.run([sys.executable, "-c", code, *texts], stderr=jvm.fd, check=True, timeout=TIMEOUT)
    return capfd.readouterr().err


def test_all_that_is_written_is_seen_in_its_order(capfd):
    """Also a last line without an end, stacks of other errors, many lines at once and long ones."""
    many = "".join(f"{n} a line of a log\n" for n in range(5_000))
    plan = "a plan" * 10_000 + "\n"
    said = seen(capfd, "a\nb", "c\n", JVM, OTHER, many, plan, "the end")
    assert said == f"a\nbc\n{JVM}{OTHER}{many}{plan}the end\n"


@pytest.mark.parametrize("texts", [[LOST], [LOST[:50], LOST[50:]], [CUT], [LOST, LOST[:35]]], ids=repr)
def test_stacks_of_workers_that_spark_has_let_go_are_not_seen(capfd, texts):
    """Nor one that is cut off, as by the end of the JVM."""
    assert seen(capfd, "before\n", *texts) == "before\n"
    if texts[-1] is LOST:
        assert seen(capfd, "before\n", *texts, OTHER, "after\n") == f"before\n{OTHER}after\n"


def test_nothing_is_seen_of_a_jvm_that_was_told_to_stop(capfd):
    """As when all processes of a job are sent SIGTERM."""
    assert seen(capfd, "a\n", JVM, stopping=True) == ""


def test_a_jvm_that_lives_on_is_seen_up_to_the_end_of_the_job_and_is_not_held_up_after_it(capfd):
    """A pipe that nobody reads takes 64 KiB."""
    with JvmStderr(lambda: False) as jvm:
        fd = os.dup(jvm.fd)
        os.write(fd, b"while it runs\n")
    os.write(fd, b"after it\n" * 100_000)
    os.close(fd)
    assert capfd.readouterr().err == "while it runs\n"


@pytest.mark.parametrize("texts", [[QUIET_REPORT], [MODULES, QUIET_REPORT[:400], QUIET_REPORT[400:]], [MODULES]])
def test_what_every_start_prints_is_not_seen(capfd, texts):
    """A module that Spark asks for itself, and the report of a package that is there."""
    assert seen(capfd, *texts, "after\n") == "after\n"


def test_a_download_is_told_in_one_line(capfd):
    """While it takes its time, and once."""
    told, begins = "", REPORT.index("\t[SUCCESSFUL ]")
    with JvmStderr(lambda: False) as jvm:
        os.write(jvm.fd, (MODULES + REPORT[:begins]).encode())

        def heard() -> bool:
            nonlocal told
            told += capfd.readouterr().err
            return told == DOWNLOADS

        wait_for(heard, lambda: told)
        os.write(jvm.fd, (REPORT[begins:] + REPORT).encode())
    assert told + capfd.readouterr().err == DOWNLOADS


@pytest.mark.parametrize("cut", [0, 300, len(FAILED) - 3])
def test_a_report_of_a_package_that_is_not_found_is_seen(capfd, cut):
    """All of it, when the JVM ends; a report with a problem that came to its end, too."""
    assert seen(capfd, MODULES, FAILED[:cut], FAILED[cut:]) == FAILED
    warned = QUIET_REPORT.replace(":: retrieving", f"{PROBLEM}:: retrieving")
    assert seen(capfd, warned) == warned


def test_a_report_that_does_not_end_is_seen_at_the_end_of_the_jvm(capfd):
    """What has cut it off may be in its last lines."""
    assert seen(capfd, "before\n", QUIET_REPORT[:400]) == f"before\n{QUIET_REPORT[:400]}".rstrip("\n") + "\n"


@pytest.mark.parametrize(("text", "ended"), [("a bar\r", "a bar\r"), ("x" * 200_000, "x")])
def test_text_without_ends_of_lines_is_seen_while_the_jvm_runs(text, ended, capfd):
    """More than a pipe takes, and the lines of a progress bar."""
    said = ""
    with JvmStderr(lambda: False) as jvm:
        os.write(jvm.fd, text.encode())

        def heard() -> bool:
            nonlocal said
            said += capfd.readouterr().err
            return said.removesuffix("\n").endswith(ended)

        wait_for(heard, lambda: said)
        os.write(jvm.fd, b"the end\n")


class Full:
    """A stderr in a file whose disk has no room for a moment."""

    def __init__(self) -> None:
        self.refused = 0

    def write(self, text: str) -> int:
        if not self.refused:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(2, text.encode())

    def flush(self) -> None:
        """All is written."""


def test_a_line_that_cannot_be_written_does_not_hold_up_the_jvm(capfd):
    """The pipe is read on, and what comes later is seen again."""
    with contextlib.redirect_stderr(Full()) as full, JvmStderr(lambda: False) as jvm:
        os.write(jvm.fd, b"no room\n")
        wait_for(lambda: full.refused, "a line that is refused")
        code = "import os\nfor n in range(2_000): os.write(2, b'%099d\\n' % n)"
        subprocess.run([sys.executable, "-c", code], stderr=jvm.fd, check=True, timeout=TIMEOUT)
    said = capfd.readouterr().err
    assert "no room" not in said and said.count("\n") == 2_000
