"""Why a query failed: the error of spark-eos inside the exception that Spark raises.

Errors cross process boundaries as text only, from Python workers to the JVM and from there to the user's Python.
`EosError` writes a text that can be parsed: ``[CONDITION] message Hint: hint``. Python puts the class before it, and
Spark its own words before that. Only a text of exactly this form counts: errors of others may quote any record.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

from spark_eos import errors
from spark_eos.errors import HINT, EosError, restart_helps, stop
from spark_eos.spark.damaged_checkpoint import damage
from spark_eos.spark.system_errors import in_spark

#: Prefixes that Spark puts before the text of an error that it passes on, by the templates of its versions. A text has
#: any number of them, one after the other, and then the error itself. None of them has room for a record's content.
_AROUND = re.compile(
    r"""
      \[STREAM_FAILED\]\ Query\ [^\n]*?\[id\ =\ [\w-]+,\ runId\ =\ [\w-]+\]\ terminated\ with\ exception:\s
    | \[FOREACH_BATCH_USER_FUNCTION_ERROR\]\ An\ error\ occurred\ in\ the\ user\ provided\ function\ [^:\n]*?Reason:\s
    | \[WRITING_JOB_ABORTED\]\ [^:\n]*?\.\s
    | (?:\[PYTHON_EXCEPTION\]\ )?\[session:\ [\w-]+\]\ \[userId:\ [^\]\n]*\]
      \ (?:Found\ error\ inside\ foreachBatch\ Python\ process:\s)?
    | \[PYTHON_\w+\]\ [^:\n]*:\s+
    | \[STREAMING_PYTHON_RUNNER_INITIALIZATION_\w+\]\ [^:\n]*?Cause:\s+
    | An\ exception\ was\ (?:thrown\ from\ the\ Python\ worker:|raised\ by\ the\ Python\ Proxy\.\ Return\ Message:)\s+
    | An\ error\ occurred\ while\ calling\ (?:z:)?[\w.$]+\.\s*(?::\s)?
    | Job\ aborted\ due\ to\ stage\ failure:\ Task\ \d+\ in\ stage\ [\d.]+\ failed\ \d+\ times?,
      \ most\ recent\ failure:\ Lost\ task\ [\d.]+\ in\ stage\ [\d.]+\ \(TID\ \d+\)\ \([^()\n]*\):\s
    | \([\w.$]+\)\s
    | (?:org\.apache\.spark\.(?:Spark\w*Exception|api\.python\.PythonException)
      |org\.apache\.spark\.sql\.(?:AnalysisException|[\w.]*QueryException)
      |py4j\.(?:Py4JException|protocol\.Py4JJavaError)|pyspark\.errors\.exceptions\.[\w.]+|delta\.exceptions\.[\w.]+):\s
    | Traceback\ \(most\ recent\ call\ last\):\n(?:[ ][^\n]*\n)+
    """,
    re.VERBOSE,
)
#: An error of spark-eos, as Python prints it: up to the end of its line, or to the text that Spark appends to it.
_OURS = re.compile(
    r"spark_eos\.errors\.(?P<type>\w+): \[(?P<condition>EOS_[A-Z0-9_]+)\] (?P<text>.+?)"
    r"(?=\s*SQLSTATE: |\s*\n|\s*$)"
)
#: An error that a job's plan raises for a row, by SQL's raise_error. A restart never helps there.
_RAISED_BY_PLAN = re.compile(
    r"\[USER_RAISED_EXCEPTION\] \[(?P<condition>EOS_(?:JOB|DELTA|FILE)_[A-Z0-9_]+)\] (?P<text>.+?)"
    r"(?=\s*SQLSTATE: |\s*\n|\s*$)"
)
#: Python's error for a missing module that `setup.cfg` requires: in a worker, or at the start of the daemon that forks
#: workers, where ``spark.python.daemon.module`` names this package's.
_MISSING = re.compile(
    r"(?:\s*Error from python worker:\s+[^\n]+?: Error while finding module specification for '[\w.]+' \()?"
    r"ModuleNotFoundError: No module named '(?P<module>spark_eos|pyarrow|numpy|confluent_kafka|fastcrc)(?:\.[.\w]+)?'"
)
#: The process at the other end of a socket is gone: Java's message, and the frame of Spark where its stack begins.
_CUT_OFF = re.compile(
    r"(?:java\.[\w.]+Exception(?:: )?)?(?:Connection reset(?: by peer)?|Broken pipe|Stream closed|null)?"
    r"\s*(?:SQLSTATE: |\n|$)"
)
_PYTHON_FRAME = re.compile(
    r"^(?:Caused by: |: )?java\.(?:io|net|nio\.channels)\.\w+Exception[^\n]*\n(?:\s+at (?!org\.apache)[^\n]*\n)*"
    r"\s+at org\.apache\.spark\.[\w.]+\.(?:Streaming)?(?:Python\w+|ForeachBatchHelper)[.$]",
    re.MULTILINE,
)
#: In Spark's text, the query's plan follows this line. It may contain such texts as literals.
PLAN = "=== Streaming Query ==="


@dataclass(frozen=True)
class Reason:
    """Reason for a query's failure. ``condition`` is the stable name (docs/errors.md), ``hint`` the next step.

    ``restart_helps``: whether the same query continues when it is started again with nothing changed.
    """

    condition: str
    message: str
    hint: str
    restart_helps: bool

    def __str__(self) -> str:
        return f"[{self.condition}] {self.message}" + (f"{HINT}{self.hint}" if self.hint else "")


def reason(error: BaseException) -> Reason | None:
    """Return the error of spark-eos that ``error`` is or contains; None if there is none.

    ``error``: an EosError, or an exception of Spark such as StreamingQueryException or AnalysisException.
    """
    if isinstance(error, EosError):
        return Reason(error.condition, error.message, error.hint, error.restart_helps)
    around, text = _parts(str(error))
    found, raised = _OURS.match(text), _RAISED_BY_PLAN.match(text)
    if found is not None and found["type"] in _TYPES:
        return _reason(found, restart_helps(found["condition"]))
    if raised is not None:
        return _reason(raised, restart_helps=False)
    ours = _of_spark(around, text, _stack(error))
    return reason(ours) if ours is not None else None


def _of_spark(around: str, text: str, stack: str) -> EosError | None:
    """Return the error for one that Spark raises by itself."""
    ours = damage(around, text, stack) or in_spark(around, text, stack) or _without_package(text)
    if ours is None and _CUT_OFF.match(text) and _PYTHON_FRAME.search(stack):
        return worker_died()
    if ours is None and text.startswith("[JAVA_GATEWAY_EXITED]"):
        return _without_java()
    return ours or next((make() for theirs, make in _SPARKS if theirs.match(text)), None)


def _reason(found: re.Match[str], restart_helps: bool) -> Reason:
    message, _, hint = found["text"].partition(HINT)
    return Reason(found["condition"], message, hint, restart_helps)


def error_itself(text: str) -> str:
    """Return the text of the error that was raised, without Spark's prefixes."""
    return _parts(text)[1]


def _parts(text: str) -> tuple[str, str]:
    """Split a text into Spark's prefixes and the rest, which begins with the error that was raised.

    The error may quote a record. So the rest is only matched from its beginning, never searched: otherwise a record
    could decide whether a query is restarted.
    """
    at = 0
    while (around := _AROUND.match(text, at)) is not None:
        at = around.end()
    return text[:at], text[at:]


def as_error(error: BaseException) -> EosError | None:
    """Return the error of spark-eos that ``error`` is or contains, to be raised instead, without the JVM's stacks; None
    for errors of Spark itself or of the user's plan."""
    if isinstance(error, EosError):
        return error
    ours = _OURS.match(error_itself(str(error)))
    if ours is None or ours["type"] not in _TYPES:
        return None
    message, _, hint = ours["text"].partition(HINT)
    kind: type[EosError] = getattr(errors, ours["type"])
    return kind(ours["condition"], message, hint=hint)


def _stack(error: BaseException | None) -> str:
    """Return the stack of Spark's JVM and of its causes: an attribute of PySpark's errors, by another name of Spark
    Connect's, and part of the text of Py4J's."""
    if error is None:
        return ""
    own = getattr(error, "_stackTrace", "") or getattr(error, "_stacktrace", "")
    return f"{error}\n{own}\n{_stack(getattr(error, '_cause', None))}"


def batch_mode() -> EosError:
    return stop(
        "EOS_USE_UNSUPPORTED.append", why="Spark's default for df.write is to fail if something is there already"
    )


def batch_overwrite() -> EosError:
    return stop("EOS_USE_UNSUPPORTED.append", why="cannot overwrite what is there")


def update_mode() -> EosError:
    return stop("EOS_USE_UNSUPPORTED.update_mode")


def continuous_trigger() -> EosError:
    return stop("EOS_USE_UNSUPPORTED.continuous_trigger")


def worker_died() -> EosError:
    return stop("EOS_WORKER_DIED.killed", process="A Spark Python worker", how="it was killed or it crashed")


def worker_late() -> EosError:
    return stop("EOS_WORKER_DIED.late")


def _without_package(text: str) -> EosError | None:
    """Return the error for the stack of a worker that cannot import a task's modules."""
    match = _MISSING.match(text)
    if match is None:
        return None
    return stop("EOS_NOT_ON_WORKERS.executor", module=match["module"])


def _without_java() -> EosError | None:
    """Return the error for a JVM that could not be started, where that is because of the Java."""
    from spark_eos.tools.devcluster.java import find_java

    try:
        find_java()
    except EosError as error:
        return error
    return None


def format_not_found() -> EosError:
    return stop("EOS_NOT_ON_WORKERS.driver", executable=sys.executable)


def _begins(text: str, condition: str = "") -> re.Pattern[str]:
    """Return a pattern of texts that begin with ``text``, possibly after Spark's condition name."""
    named = rf"(?:\[{condition}\] )?" if condition else ""
    return re.compile(named + r"(?:(?:java\.lang\.IllegalArgumentException: )?requirement failed: )?" + re.escape(text))


#: Spark's daemon of workers was killed while it started; with Python's output, if there is any.
_DAEMON_KILLED = re.compile(
    r"(?:\s*Error from python worker:\n(?:[ ][^\n]*\n)*PYTHONPATH was:\n[^\n]*\norg\.apache\.spark\.SparkException: )?"
    r"EOFException occurred while reading the port number from [\w.]+'s stdout and terminated with code: 137\b"
)
#: The names of error classes. A text that has a condition, but none of these before it, is not an error of spark-eos.
_TYPES = frozenset(name for name, value in vars(errors).items() if isinstance(value, type))

#: Errors that Spark raises before it calls spark-eos, and the equivalent errors of spark-eos.
_SPARKS: tuple[tuple[re.Pattern[str], Callable[[], EosError]], ...] = (
    (_begins("eos-kafka does not support Update mode"), update_mode),
    (_begins("Data source eos-kafka does not support continuous processing"), continuous_trigger),
    (
        _begins('The data source "eos-kafka" cannot be written in the "', "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        batch_mode,
    ),
    (_begins("Failed to find the data source: eos-kafka", "DATA_SOURCE_NOT_FOUND"), format_not_found),
    (_begins("Python worker exited unexpectedly"), worker_died),
    (_begins("Python worker failed to connect back"), worker_late),
    (_DAEMON_KILLED, worker_died),
)
