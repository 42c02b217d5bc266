"""Translates errors of Delta that end a query to errors of spark-eos, with cause and next step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException

from spark_eos.errors import EosError, again, stop
from spark_eos.spark.reasons import error_itself, reason

#: Spark's own names for rows that a table does not take.
_SPARKS = "EXCEED_LIMIT_LENGTH|CAST_OVERFLOW_IN_TABLE_INSERT|NOT_NULL_ASSERT_VIOLATION"
_CLASS = re.compile(rf"\[(DELTA_[A-Z0-9_]+|FAILED_READ_FILE\.FILE_NOT_EXIST|{_SPARKS})[\].A-Z0-9_]*\s*")
#: The end of Delta's message: a blank line, the JVM's stack trace, or Spark's SQLSTATE.
_END = re.compile(r"\n\s*\n|\n\s+at |\s*SQLSTATE: ")
_MOST_CHARACTERS = 400
#: Exceptions of Java may name each other as causes.
_MOST_CAUSES = 50
#: Exceptions of Delta that may have no condition, by the names of their classes, in Java and in its Python package.
_CLASSES = {
    "ConcurrentAppendException": "DELTA_CONCURRENT_APPEND",
    "ConcurrentDeleteDeleteException": "DELTA_CONCURRENT_DELETE_DELETE",
    "ConcurrentDeleteReadException": "DELTA_CONCURRENT_DELETE_READ",
    "ConcurrentTransactionException": "DELTA_CONCURRENT_TRANSACTION",
    "ConcurrentWriteException": "DELTA_CONCURRENT_WRITE",
    "MetadataChangedException": "DELTA_METADATA_CHANGED",
    "ProtocolChangedException": "DELTA_PROTOCOL_CHANGED",
}


def named(error: BaseException, table: str = "") -> EosError | None:
    """Translate an error of Delta; None for other errors. ``table``: the path of the job's table.

    It is recognized by the condition of a cause, by its Java class, or, where only the text is passed on, as from a
    foreachBatch in Python, by its text.
    """
    if isinstance(error, EosError) or reason(error) is not None:
        return None
    text = error_itself(str(error))
    at_its_head = _CLASS.match(text)
    causes = [*_causes(error), *([(at_its_head[1], text[at_its_head.end() :])] if at_its_head else [])]
    made = (_made(condition, said, table) for condition, said in causes)
    return next(filter(None, made), None)


def of_write(error: BaseException, table: str) -> EosError | None:
    """Translate the error of a failed write to the table; None where it is an error of spark-eos, an error of Spark
    about a row, or the end of the JVM."""
    translated = named(error, table)
    if translated is not None or reason(error) is not None:
        return translated
    for _, said in _causes(error):  # an error that the job's plan raises for a row
        ours = reason(RuntimeError(said))
        if ours is not None:
            return again(ours.condition, ours.message, ours.hint)
    where = f", table {table}"
    if isinstance(error, AnalysisException):  # Spark has made no plan of it
        return stop("EOS_DELTA_COLUMNS.rows", cause=_shortened(str(getattr(error, "_desc", error))) + where)
    if isinstance(error, Py4JJavaError):
        *_, last = _chain(error)
        cause = f"{last.getClass().getSimpleName()}: {_shortened(last.getMessage() or '')}{where}"
        return stop("EOS_DELTA_FAILED", cause=cause)
    return None


def _causes(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield condition and text of the error and its causes, in Python and in Java."""
    for cause in _chain(error):
        if isinstance(cause, BaseException):
            yield _condition(cause) or "", str(getattr(cause, "_desc", cause))
        else:
            name = cause.getClass().getSimpleName()
            condition = cause.getCondition() if _is_sparks(cause) else None
            yield _short(_CLASSES.get(name) or condition or ""), cause.getMessage() or ""


def _chain(error: BaseException) -> Iterator[Any]:
    """Yield the error and its causes: Python exceptions, then the Java exceptions behind them."""
    each: BaseException | None = error
    java: Any = None
    while each is not None:
        yield each
        java = java or getattr(each, "java_exception", None)
        each = getattr(each, "_cause", None) or each.__cause__
    seen = 0
    while java is not None and seen < _MOST_CAUSES:
        yield java
        java, seen = java.getCause(), seen + 1


def _is_sparks(java: Any) -> bool:  # noqa: ANN401  # Py4J's view of the JVM
    gateway = SparkContext._gateway  # noqa: SLF001  # nothing public leads there
    return gateway is not None and is_instance_of(gateway, java, "org.apache.spark.SparkThrowable")


def _condition(error: BaseException) -> str | None:
    """Return Delta's or Spark's name of an exception of the JVM, up to the first dot; or the name of its class."""
    if type(error).__module__.startswith("delta.exceptions"):
        return _CLASSES.get(type(error).__name__)
    return _short((error.getCondition() if isinstance(error, PySparkException) else None) or "")


def _short(condition: str) -> str:
    return condition if condition.startswith("FAILED_READ_FILE") else condition.partition(".")[0]


def _made(condition: str, text: str, table: str) -> EosError | None:
    for conditions, make in _NAMED:
        if re.fullmatch(conditions, condition):
            said = _shortened(_CLASS.sub("", text, count=1))
            return make(f"{said} ({condition}{f', table {table}' if table and table not in said else ''})")
    return None


def _shortened(text: str) -> str:
    return " ".join(_END.split(text, maxsplit=1)[0].split())[:_MOST_CHARACTERS].rstrip(".:")


#: The first that fits a condition names it.
_NAMED: tuple[tuple[str, Callable[[str], EosError]], ...] = (
    ("DELTA_CONCURRENT_TRANSACTION", lambda cause: stop("EOS_TABLE_TWO_QUERIES", cause=cause)),
    (
        "DELTA_CONCURRENT_.*|DELTA_METADATA_CHANGED|DELTA_PROTOCOL_CHANGED|DELTA_MAX_COMMIT_RETRIES_EXCEEDED"
        "|DELTA_COMMAND_INVARIANT_VIOLATION|DELTA_MERGE_MATERIALIZE_SOURCE_FAILED_REPEATEDLY",
        lambda cause: stop("EOS_DELTA_CONFLICT", cause=cause),
    ),
    (
        "DELTA_VIOLATE_.*|DELTA_NOT_NULL_CONSTRAINT_VIOLATED|DELTA_EXCEED_CHAR_VARCHAR_LIMIT"
        f"|DELTA_CAST_OVERFLOW_IN_TABLE_WRITE|DELTA_CANNOT_MODIFY_APPEND_ONLY|{_SPARKS}",
        lambda cause: stop("EOS_DELTA_CONSTRAINT", cause=cause),
    ),
    (
        "DELTA_INVALID_PROTOCOL_VERSION|DELTA_UNSUPPORTED_FEATURES_.*|DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH"
        "|DELTA_UNRECOGNIZED_INVARIANT|DELTA_.*CATALOG_MANAGED.*|DELTA_UNSUPPORTED_WRITES_.*",
        lambda cause: stop("EOS_DELTA_TOO_NEW", cause=cause),
    ),
    (
        "DELTA_(MISSING_DELTA_TABLE|NOT_A_DELTA_TABLE|PATH_DOES_NOT_EXIST|TABLE_NOT_FOUND|NO_RELATION_TABLE"
        "|SCHEMA_NOT_SET|ONLY_OPERATION|TABLE_ONLY_OPERATION|FILE_OR_DIR_NOT_FOUND|EMPTY_DIRECTORY"
        "|CREATE_TABLE_WITH_NON_EMPTY_LOCATION|READ_TABLE_WITHOUT_COLUMNS)",
        lambda cause: stop("EOS_DELTA_NO_TABLE.path", at=f": {cause}"),
    ),
    (
        "DELTA_(STATE_RECOVER_ERROR|MISSING_PART_FILES|TXN_LOG_FAILED_INTEGRITY|NO_COMMITS_FOUND|METADATA_ABSENT"
        "|CHECKPOINT_SNAPSHOT_MISMATCH|DUPLICATE_ACTIONS_FOUND|UNRECOGNIZED_.*|INVALID_COMMITTED_VERSION"
        "|DELETION_VECTOR_.*|NO_RECREATABLE_HISTORY_FOUND|MISSING_COMMIT_.*|LOG_FILE_NOT_FOUND.*|VERSIONS_NOT_CONTIGUOUS"
        "|TRUNCATED_TRANSACTION_LOG)",
        lambda cause: stop("EOS_DELTA_LOG_DAMAGED", cause=cause),
    ),
    (
        "DELTA_.*(COLUMN|SCHEMA|FIELD|DATA_?TYPE|MERGE_).*|DELTA_METADATA_MISMATCH|DELTA_.*TYPE_CHANGE.*"
        "|DELTA_.*PARTITION.*",
        lambda cause: stop("EOS_DELTA_COLUMNS.rows", cause=cause),
    ),
    (r"DELTA_.*|FAILED_READ_FILE\.FILE_NOT_EXIST", lambda cause: stop("EOS_DELTA_FAILED", cause=cause)),
)
