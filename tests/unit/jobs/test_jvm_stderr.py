"""What the JVM of a job writes to stderr, and what of it a user sees."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jobs.jvm_stderr import JvmStderr

LOST = """\
Traceback (most recent call last):
  File "daemon.py", line 262, in manager
    code = worker(sock, authenticated)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^
BrokenPipeError: [Errno 32] Broken pipe
"""
OTHER = LOST.replace("BrokenPipeError: [Errno 32] Broken pipe", "ValueError: of its own")
CUT = "Traceback (most recent call last):\n  File"
JVM = 'Exception in thread "stream": SparkException\n\tat org.apache.spark\n'


def seen(capfd: pytest.CaptureFixture[str], *texts: str, stopping: bool = False) -> str:
    """What stands on stderr at the end, where a process has written these pieces one after the other."""
    with JvmStderr(lambda: stopping) as jvm:
        code = "import os, sys\nfor piece in sys.argv[1:]: os.write(2, piece.encode())"
        subprocess.run([sys.executable, "-c", code, *texts], stderr=jvm.fd, check=True, timeout=60)
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
