"""Runs a job's streaming query: a clean stop on signals, readable errors, exit codes."""

from __future__ import annotations

import os
import re
import signal
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError

from spark_eos import Restart, reason
from spark_eos.errors import EosError
from spark_eos.spark.reasons import PLAN

from .lines import say, say_at_once

#: Exit codes: the job is done or was stopped; a change is needed; starting it again helps (EX_TEMPFAIL).
DONE, FAILED, TRY_AGAIN = 0, 1, os.EX_TEMPFAIL

#: The last line of a Python traceback inside the text of Spark's error: `package.Error: what is wrong`.
_PYTHON = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): .+$", re.MULTILINE)
#: The line before an exception of Java that Py4J has brought to Python: it only names the called method.
_CALLED = re.compile(r"^(?:py4j\.protocol\.Py4JJavaError: )?An error occurred while calling .+\n: ", re.MULTILINE)
#: Py4J says this of a method that the JVM does not have.
_REFUSED = re.compile(r"\. Trace:\n")
_STOP_POLL_S = 0.5


class Stop:
    """A request to stop the job, and the signal by which it came.

    ``leave()`` ends the process at once. It is called by a signal before ``running`` is set, when there is no query yet
    to be stopped, and by a second signal.
    """

    def __init__(self, leave: Callable[[int], None] = os._exit) -> None:
        self._leave = leave
        self.running = False
        #: Whether the work has failed before it was asked to stop.
        self.failed = False
        self.signal = ""

    def ask(self, number: int, frame: types.FrameType | None = None) -> None:
        """Handle a signal. Takes no lock: the next signal would wait for it, in this same thread."""
        again = self.asked()
        self.signal = name = signal.Signals(number).name
        if again or not self.running:
            say_at_once(f"stopped by {name}, {'the second one, in mid-stop' if again else 'before there was a query'}")
            self._leave(DONE)
        say_at_once(
            f"stopping: {name}; the micro-batch under way, if any, is given up and runs again at the next start"
        )

    def asked(self) -> bool:
        return bool(self.signal)


def interruptible(work: Callable[[Stop], int]) -> int:
    """Run ``work`` in a thread and return its exit code, while SIGTERM and SIGINT (Ctrl-C) go to its `Stop`.

    The main thread is left to the signals: Python runs handlers there only, and Spark, started from it, would install
    its own handler, which fails the running job.
    """
    asked = Stop()
    codes: list[int] = []

    def run() -> None:
        try:
            codes.append(work(asked))
        except SystemExit:  # by the user's code: of this one alone, a thread prints nothing
            traceback.print_exc()

    worker = threading.Thread(target=run, name="job", daemon=True)
    with _handled_by(asked):
        worker.start()
        while worker.is_alive():
            worker.join(_STOP_POLL_S)
    return codes[0] if codes else FAILED


@contextmanager
def _handled_by(stop: Stop) -> Iterator[None]:
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say_restart(restart: Restart) -> None:
    """Print why the query has failed, and when it is started again."""
    say(f"failed: {restart.reason}")
    say(f"restart {restart.attempt} of {restart.attempts} in {restart.pause_s:g} s")


def failed(error: BaseException, *, verbose: bool = False) -> int:
    """Print why the job has failed and whether a restart helps. Returns the exit code."""
    say("failed: " + failure_text(error, verbose=verbose))
    cause = reason(error)
    if cause.restart_helps if cause else jvm_has_ended(error):
        say(f"restart the job unchanged: it resumes where it stopped (exit code {TRY_AGAIN})")
        return TRY_AGAIN
    say(f"restarting will not help until this is fixed (exit code {FAILED})")
    return FAILED


def failure_text(error: BaseException, *, verbose: bool = False) -> str:
    """Return the text to print for an error: the error of spark-eos in it, or Spark's first line. The full text with
    ``verbose``."""
    whole = str(error)
    if isinstance(error, EosError):
        return whole
    said = whole.partition(PLAN)[0]
    cause = reason(error)
    short = str(cause) if cause else _spark_text(error, said)
    return f"{short}\n\n{whole}" if verbose else short


def jvm_has_ended(error: BaseException) -> bool:
    """Return whether the JVM has ended: such a Py4JError is about nothing in it, such a ConnectionError is Py4J's."""
    if isinstance(error, ConnectionError):
        frames = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
        return any(name.startswith("py4j.") for name in frames)
    return isinstance(error, Py4JError) and not (isinstance(error, Py4JJavaError) or _REFUSED.search(str(error)))


def _spark_text(error: BaseException, said: str) -> str:
    if jvm_has_ended(error):
        return "Spark's JVM has ended."
    said = _CALLED.sub("", said)
    python = _PYTHON.findall(said)
    first = python[-1] if python else said.strip().partition("\n")[0]
    return f"{first} (--verbose shows all)"
