"""Why a query failed: the error of spark-eos inside the exception that Spark raises.

Errors cross process boundaries as text only, from Python workers to the JVM and from there to the user's Python.
`EosError` writes a text that can be parsed: ``[CONDITION] message Hint: hint``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

from spark_eos.damage import damage
from spark_eos.errors import HINT, RESTART_HELPS, EosError, UnsupportedError, WorkerError

#: An error of spark-eos inside Spark's text: up to the end of its line, or to what Spark appends to it.
_OURS = re.compile(r"\[(?P<condition>EOS_[A-Z0-9_]+)\] (?P<said>.+?)(?=\s*SQLSTATE: |\s*\n|\s*$)")
#: What `setup.cfg` requires, as Python names it where it is not there.
_MISSING = re.compile(
    r"ModuleNotFoundError: No module named '(?P<module>spark_eos|pyarrow|numpy|confluent_kafka|fastcrc)(?:\.[.\w]+)?'"
)
#: In Spark's text, the query's plan follows this line. It may contain such texts as literals.
PLAN = "=== Streaming Query ==="


@dataclass(frozen=True)
class Reason:
    """Why a query failed. ``condition`` is the stable name (docs/errors.md), ``hint`` the next step.

    ``restart_helps``: whether the same query continues when it is started again with nothing changed.
    """

    condition: str
    message: str
    hint: str
    restart_helps: bool

    def __str__(self) -> str:
        return f"[{self.condition}] {self.message}" + (f"{HINT}{self.hint}" if self.hint else "")


def reason(error: BaseException) -> Reason | None:
    """The error of spark-eos that ``error`` is or contains; None if there is none.

    ``error``: an EosError, or an exception of Spark such as StreamingQueryException or AnalysisException.
    """
    if isinstance(error, EosError):
        return Reason(error.condition, error.message, error.hint, error.restart_helps)
    text = str(error).partition(PLAN)[0]
    found = _OURS.search(text)
    if found is not None:
        message, _, hint = found["said"].partition(HINT)
        return Reason(found["condition"], message, hint, found["condition"] in RESTART_HELPS)
    ours: EosError | None = damage(text, _stack(error)) or _without_package(text)
    ours = ours or next((make() for theirs, make in _SPARKS if theirs in text), None)
    return reason(ours) if ours is not None else None


def _stack(error: BaseException | None) -> str:
    """The stack of Spark's JVM, with that of its causes: PySpark has it beside the text, Py4J in the text."""
    if error is None:
        return ""
    own = getattr(error, "_stackTrace", "")
    return f"{error}\n{own}\n{_stack(getattr(error, '_cause', None))}"


def batch_mode() -> UnsupportedError:
    return UnsupportedError(
        "EOS_WRITE_MODE",
        "eos-kafka appends rows to topics; Spark's default for df.write is to fail where there is something already.",
        hint='Add .mode("append"); within foreachBatch, use spark_eos.batch_writer(df, batch_id, sink="…") instead.',
    )


def batch_overwrite() -> UnsupportedError:
    return UnsupportedError(
        "EOS_WRITE_OVERWRITE",
        "eos-kafka appends rows to topics, and cannot overwrite what is there.",
        hint='Use .mode("append"). To begin with an empty topic, create a new one, or delete its records first '
        "(kafka-delete-records.sh).",
    )


def update_mode() -> UnsupportedError:
    return UnsupportedError(
        "EOS_UPDATE_MODE",
        "eos-kafka does not support output mode update: Spark does not offer it to sinks written in Python.",
        hint='Use .outputMode("append"), for an aggregation with .withWatermark(…) before it, which writes each '
        'result once, when it is final; or .outputMode("complete"), which writes all results in every '
        "micro-batch.",
    )


def continuous_trigger() -> UnsupportedError:
    return UnsupportedError(
        "EOS_CONTINUOUS_TRIGGER",
        "eos-kafka works in micro-batches: Spark does not offer continuous processing to sources and sinks "
        "written in Python.",
        hint='Use .trigger(processingTime="100 milliseconds"), or no trigger: each micro-batch then starts when the '
        "last one has ended.",
    )


def worker_died() -> WorkerError:
    return WorkerError(
        "EOS_WORKER_DIED",
        "A Spark Python worker exited unexpectedly: it was killed or it crashed.",
        hint="Nothing is lost: start the query again. If it recurs, look for the kernel's out-of-memory killer and "
        "the executor's memory limits, or set spark.python.worker.faulthandler.enabled=true to see where it crashes.",
    )


def worker_late() -> WorkerError:
    return WorkerError(
        "EOS_WORKER_LATE",
        "A Spark Python worker did not start within the seconds that Spark waits for it.",
        hint="Nothing is lost: start the query again. If it recurs, the machine has too much to do, or the Python of "
        "PYSPARK_PYTHON, or else the first python3 in PATH, does not start or cannot reach the JVM.",
    )


def _without_package(text: str) -> WorkerError | None:
    """Of the stack of a worker that cannot import what a task needs."""
    found = _MISSING.search(text)
    if found is None:
        return None
    return WorkerError(
        "EOS_EXECUTOR_WITHOUT_PACKAGE",
        f"The Python of an executor has no module '{found['module']}', which spark-eos needs there.",
        hint="Install spark-eos and what it requires for the Python of every executor, which is that of "
        "PYSPARK_PYTHON, or else the first python3 in its PATH; or send both along with the "
        "application: 'spark-eos package' makes an archive of both, and docs/clusters.md says how to use it.",
    )


def format_not_found() -> WorkerError:
    return WorkerError(
        "EOS_FORMAT_NOT_FOUND",
        "Spark has not found the format 'eos-kafka': it looks for it in the Python of PYSPARK_PYTHON, or else in the "
        "first python3 in PATH.",
        hint="Activate the environment in which spark-eos is installed, or set the variable PYSPARK_PYTHON to "
        f"{sys.executable}, before Spark starts. With an editable install, call spark_eos.register(spark) as well.",
    )


#: Errors that Spark raises before it calls spark-eos, and the equivalent errors of spark-eos.
_SPARKS: tuple[tuple[str, Callable[[], EosError]], ...] = (
    ("eos-kafka does not support Update mode", update_mode),
    ("eos-kafka does not support continuous processing", continuous_trigger),
    ('The data source "eos-kafka" cannot be written in the "', batch_mode),
    ("Failed to find the data source: eos-kafka", format_not_found),
    ("Python worker exited unexpectedly", worker_died),
    ("Python worker failed to connect back", worker_late),
)
