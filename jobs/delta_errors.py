"""Errors of Delta that end a query, by the job's names for them: what has happened, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from pyspark.errors import PySparkException

from spark_eos.errors import DataLossError, EosError, TableError
from spark_eos.reasons import error_itself, reason

_CLASS = re.compile(r"\[((?:DIFFERENT_)?DELTA_[A-Z_]+|FAILED_READ_FILE\.FILE_NOT_EXIST)[\].A-Z_]*\s*")
#: What Delta says ends here: a blank line, the stack of the JVM, Spark's state.
_END = re.compile(r"\n\s*\n|\n\s+at |\s*SQLSTATE: ")
_MOST_CHARACTERS = 400
#: Classes of Delta's Python package, by which it replaces those of the JVM. They have no condition.
_CLASSES = {
    "ConcurrentAppendException": "DELTA_CONCURRENT_APPEND",
    "ConcurrentDeleteDeleteException": "DELTA_CONCURRENT_DELETE_DELETE",
    "ConcurrentDeleteReadException": "DELTA_CONCURRENT_DELETE_READ",
    "ConcurrentTransactionException": "DELTA_CONCURRENT_TRANSACTION",
    "ConcurrentWriteException": "DELTA_CONCURRENT_WRITE",
    "MetadataChangedException": "DELTA_METADATA_CHANGED",
    "ProtocolChangedException": "DELTA_PROTOCOL_CHANGED",
}


def named(error: BaseException) -> EosError | None:
    """The error for what Delta says; None for errors that are not Delta's, or have no name here.

    Known by the condition of a cause, or by its class in Java; by its text where only that has come through, as from
    the Python of a foreachBatch.
    """
    if isinstance(error, EosError) or reason(error) is not None:
        return None
    for cause in _causes(error):
        made = _made(_condition(cause) or "", str(getattr(cause, "_desc", cause)))
        if made is not None:
            return made
    text = error_itself(str(error))
    found = _CLASS.match(text)
    return _made(found[1], text[found.end() :]) if found is not None else None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = getattr(error, "_cause", None) or error.__cause__


def _condition(error: BaseException) -> str | None:
    """Of an exception of the JVM: Delta's or Spark's name for it, without what follows a dot; or that of its class."""
    if type(error).__module__.startswith("delta.exceptions"):
        return _CLASSES.get(type(error).__name__)
    condition: str | None = error.getCondition() if isinstance(error, PySparkException) else None
    return condition if not condition or condition.startswith("FAILED_READ_FILE") else condition.partition(".")[0]


def _made(condition: str, text: str) -> EosError | None:
    for conditions, make in _NAMED:
        if re.fullmatch(conditions, condition):
            said = " ".join(_END.split(_CLASS.sub("", text, count=1), maxsplit=1)[0].split())
            return make(said[:_MOST_CHARACTERS].rstrip(".:"))
    return None


def rows_changed(said: str) -> EosError:
    return TableError(
        "EOS_DELTA_ROWS_CHANGED",
        f"Rows of the table were deleted, updated or overwritten, but a stream of appends cannot tell that: {said}.",
        hint="Read the table's changes, by 'source.changes: true' with a new checkpoint and 'source.startingVersion'. "
        "Or, if they do not matter, continue after that version once all rows before it are read: with a new "
        "checkpoint, with the next version as 'source.startingVersion'.",
    )


def files_gone(said: str) -> EosError:
    return DataLossError(
        "EOS_DELTA_FILES_GONE",
        f"A file of the table that this query has not read yet no longer exists: {said}.",
        hint="VACUUM has removed it, as the query was behind for longer than 'delta.deletedFileRetentionDuration'. "
        "Restore the file. Otherwise its rows are lost for this query: write them by other means, and go on with a new "
        "checkpoint and 'source.startingVersion'.",
    )


def log_gone(said: str) -> EosError:
    return DataLossError(
        "EOS_DELTA_LOG_GONE",
        f"The table's log no longer has the versions that this query has not read yet: {said}.",
        hint="The query was behind for longer than 'delta.logRetentionDuration' says, or files of _delta_log were "
        "removed. Restore them, or begin with a new checkpoint, which reads the table as it is now.",
    )


def schema_changed(said: str) -> EosError:
    return TableError(
        "EOS_DELTA_SCHEMA_CHANGED",
        f"The columns of the table have changed while the query was running: {said}.",
        hint="See whether 'transform' still does what it should, then start the job again: after added columns it goes "
        "on. After columns were dropped, renamed or given another type, begin with a new checkpoint, and with the "
        "version of that change (DESCRIBE HISTORY) as 'source.startingVersion': it leaves out rows of earlier versions "
        "that were not read yet.",
    )


def other_table(said: str) -> EosError:
    return TableError(
        "EOS_DELTA_OTHER_TABLE",
        f"The table is not the one that the checkpoint belongs to: {said}.",
        hint="It was deleted and recreated, or 'source.path' has changed. Correct the path, or begin with a new "
        "checkpoint, which reads the table from its beginning.",
    )


def no_version(said: str) -> EosError:
    return TableError(
        "EOS_DELTA_NO_VERSION",
        f"The table does not have the version that is to be read first: {said}.",
        hint="Correct 'source.startingVersion': DESCRIBE HISTORY shows the versions. Or leave it out, to begin with "
        "the table as it is.",
    )


def no_change_feed(said: str) -> EosError:
    return TableError(
        "EOS_DELTA_NO_CHANGE_FEED",
        f"The table has not recorded its changes for all versions that are to be read: {said}.",
        hint="Set the table's property 'delta.enableChangeDataFeed = true', and 'source.startingVersion' to the "
        "version of that change or a later one.",
    )


def two_queries(said: str) -> EosError:
    return TableError(
        "EOS_DELTA_TWO_QUERIES",
        f"Another process has committed a micro-batch of this query to the table: {said}.",
        hint="Two jobs run with the same checkpoint, or copies of it. Stop one of them for good.",
    )


def conflict(said: str) -> EosError:
    return TableError(
        "EOS_DELTA_CONFLICT",
        f"Another writer has changed the rows of the table that this micro-batch was merged into: {said}.",
        hint="Nothing of the micro-batch is in the table: start the job again. If it recurs, let OPTIMIZE, DELETE and "
        "other writers run while the job is stopped.",
    )


def columns(said: str) -> EosError:
    return TableError(
        "EOS_DELTA_COLUMNS",
        f"The columns of the table no longer match the rows: {said}.",
        hint="The table was changed while the query was running. Start the job again: it says what differs.",
    )


_NAMED: tuple[tuple[str, Callable[[str], EosError]], ...] = (
    ("DELTA_SOURCE_IGNORE_DELETE|DELTA_SOURCE_TABLE_IGNORE_CHANGES", rows_changed),
    (r"FAILED_READ_FILE\.FILE_NOT_EXIST|DELTA_FILE_NOT_FOUND", files_gone),
    (
        "DELTA_MISSING_FILES_UNEXPECTED_VERSION|DELTA_LOG_FILE_NOT_FOUND.*|DELTA_STREAMING_TRAILING_COMMIT_MISSING"
        "|DELTA_VERSIONS_NOT_CONTIGUOUS|DELTA_TRUNCATED_TRANSACTION_LOG",
        log_gone,
    ),
    (
        "DELTA_SCHEMA_CHANGED.*|DELTA_STREAMING_.*SCHEMA.*|DELTA_STREAMING_METADATA_EVOLUTION"
        "|DELTA_CHANGE_DATA_FEED_INCOMPATIBLE.*",
        schema_changed,
    ),
    ("DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE", other_table),
    ("DELTA_VERSION_NOT_FOUND", no_version),
    ("DELTA_MISSING_CHANGE_DATA", no_change_feed),
    ("DELTA_CONCURRENT_TRANSACTION", two_queries),
    ("DELTA_CONCURRENT_.*|DELTA_METADATA_CHANGED|DELTA_PROTOCOL_CHANGED", conflict),
    ("DELTA_FAILED_TO_MERGE_FIELDS|DELTA_METADATA_MISMATCH|DELTA_MERGE_.*", columns),
)
