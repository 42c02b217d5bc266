"""What a job prints when its query fails."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from jobs.runner.query import Stop, failed, failure_text, interruptible
from spark_eos.errors import ConnectionFailed, Superseded

ROOT = Path(__file__).parents[3]
OURS = "[EOS_SUPERSEDED] Another run has taken over. Hint: Stop this one."
IN_SPARK = f"""[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_EXCEPTION] An exception \
was thrown from the Python worker: Traceback (most recent call last):
  File "pyspark/worker.py", line 1, in main
    writer.commit(messages, batch)
spark_eos.errors.Superseded: {OURS}
 SQLSTATE: XXKST
=== Streaming Query ===
Filter (raise_error("[EOS_JOB_MALFORMED_ROW] The value of topic ", topic#1))
\tat org.apache.spark.sql.X.y(X.scala:1)"""


def in_python(error: str) -> str:
    """Spark's text for another error in the user's Python."""
    return IN_SPARK.replace(f"spark_eos.errors.Superseded: {OURS}", error)


class OfTheJvm(Py4JJavaError):
    """As Py4J raises it; without a JVM, its text is made here."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


CALLED = "An error occurred while calling None.x.JavaSparkContext.\n: org.apache.spark.SparkException: No port\n\tat y"
BY_A_CALL = in_python(f"py4j.protocol.Py4JJavaError: {CALLED}")
NO_PORT = "org.apache.spark.SparkException: No port (--verbose shows all)"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Superseded("EOS_SUPERSEDED", "Another run has taken over.", hint="Stop this one."), OURS),
        (Exception(IN_SPARK), OURS),
        (Exception(in_python("ValueError: no such plane")), "ValueError: no such plane (--verbose shows all)"),
        (Exception("\n[TABLE_NOT_FOUND] x\n\tat y"), "[TABLE_NOT_FOUND] x (--verbose shows all)"),
        (OfTheJvm(CALLED), NO_PORT),
        (Exception(BY_A_CALL), NO_PORT),
        (OfTheJvm(BY_A_CALL), NO_PORT),
    ],
    ids=["ours", "ours in Spark's", "user's Python", "Spark's own", "Py4J's", "a call in Python", "that by Py4J"],
)
def test_an_error_is_named_by_the_line_that_says_what_is_wrong(error, text):
    """Ours without Spark's stack and plan; an error of Python or Java by its own line, and not by what was called, nor
    by a text of ours that stands in the query's plan."""
    assert failure_text(error) == text


def test_verbose_prints_ours_first_and_all_of_sparks():
    """With --verbose nothing that Spark has said is lost."""
    text = failure_text(Exception(IN_SPARK), verbose=True)
    assert text.startswith(OURS) and text.endswith(IN_SPARK)


UNREACHABLE = ConnectionFailed("EOS_KAFKA_UNREACHABLE", "No answer from h:1 within 60 s (x).", hint="Check it.")


def no_jvm() -> BaseException:
    """What Py4J raises for the first call after the JVM's end."""
    with socket.socket() as taken, pytest.raises(ConnectionRefusedError) as caught:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        java = JavaParameters(port=taken.getsockname()[1])
        client = ClientServer(java, PythonParameters(port=0))
        client.jvm.System.exit(0)
    client.shutdown()
    return caught.value


NO_METHOD = "An error occurred while calling o2.x."
FAILURES = {
    "needs somebody": (Exception(IN_SPARK), 1),
    "in Spark's": (Exception(IN_SPARK.replace(OURS, str(UNREACHABLE))), 75),
    "ours": (UNREACHABLE, 75),
    "no JVM": (Py4JNetworkError("Answer from Java side is empty"), 75),
    "none in mid-call": (Py4JError("An error occurred while calling o29.sc"), 75),
    "no method": (Py4JError(f"{NO_METHOD} Trace:\npy4j.Py4JException: Method x([]) does not exist\n\tat"), 1),
    "none in mid-look": (Py4JError("org.X does not exist in the JVM"), 75),  # no answer is no class, too
    "none any more": (no_jvm(), 75),
    "user's": (ConnectionRefusedError("of the user's function"), 1),
    "Spark's own": (Exception("[TABLE_NOT_FOUND] x"), 1),
}
SAYS = {
    1: "restarting will not help until this is fixed (exit code 1)",
    75: "restart the job unchanged: it resumes where it stopped (exit code 75)",
}


@pytest.mark.parametrize(("error", "code"), FAILURES.values(), ids=FAILURES)
def test_a_failure_says_whether_a_restart_helps(error, code, capsys):
    """The exit code tells a scheduler the same as the text tells a person."""
    assert failed(error) == code
    assert capsys.readouterr().err.splitlines() == [f"failed: {failure_text(error)}", SAYS[code]]


def test_a_signal_stops_the_query_and_a_second_one_does_not_wait_for_it(capfd):
    """SIGTERM ends the query in order; a second signal leaves at once."""
    left: list[int] = []

    def work(stop: Stop) -> int:
        stop.running = True
        signal.raise_signal(signal.SIGTERM)
        while not stop.asked():
            pass
        return 7

    assert interruptible(work) == 7
    assert capfd.readouterr().err.startswith("stopping: SIGTERM; the micro-batch under way, if any, is given up")

    stop = Stop(leave=left.append)
    stop.running = True
    stop.ask(signal.SIGINT)
    assert stop.asked() and not left
    stop.ask(signal.SIGINT)
    assert left == [0]


def test_a_signal_before_there_is_a_query_ends_the_job_at_once(capfd):
    """A job that waits for its cluster can be interrupted."""
    left: list[int] = []
    Stop(leave=left.append).ask(signal.SIGINT)
    assert left == [0]
    assert "stopped by SIGINT, before there was a query" in capfd.readouterr().err


STOPS = """
import sys, time
from jobs.runner.query import interruptible, say

def work(stop):
    stop.running = True
    print("runs", flush=True)
    while not stop.asked():
        time.sleep(0.01)
    print("is asked", flush=True)
    say("a line that waits for the reader")
    time.sleep(60)

sys.exit(interruptible(work))
"""


def test_a_second_signal_ends_a_job_whose_stderr_takes_no_line():
    """As a pager's or a stopped collector's: a line of the job waits for it then, and keeps all others waiting."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b" " * 4096)
    os.set_blocking(write, True)
    command = [sys.executable, "-c", STOPS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=write, text=True, cwd=ROOT) as job:
        try:
            assert job.stdout is not None and job.stdout.readline() == "runs\n"
            job.send_signal(signal.SIGTERM)
            assert job.stdout.readline() == "is asked\n"
            time.sleep(0.3)
            job.send_signal(signal.SIGTERM)
            assert job.wait(60) == 0
        finally:
            job.kill()
            os.close(read)
            os.close(write)
