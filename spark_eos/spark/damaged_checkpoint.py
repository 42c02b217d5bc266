"""Turns Spark's errors about a checkpoint file that it cannot read into errors with a next step.

Spark reads the checkpoint before it calls a data source. Its error has no more than the parser's message: "Unexpected
end-of-input in field name". Often only the stack shows which log it was reading.
"""

from __future__ import annotations

import re

from spark_eos.errors import EosError, stop

#: The kind of check, which Spark may put before its message.
_NAMED = "(?:(?:requirement|assertion) failed: )?"
_PATH = re.compile(
    rf"{_NAMED}(?:Failed to read log file|Checksum error:) "
    r"(?P<path>(?:(?!\. )[^\n])*?\b(?P<log>offsets|commits)/\d+)\b"
)
_MISSING = re.compile(
    _NAMED + r"(?:batch (?P<one>\d+) doesn't exist|Previous batch (?P<other>\d+) not found in offset log)"
)
#: A log entry without a source.
_NO_SOURCE = re.compile(_NAMED + r"There are \[0\] sources in the checkpoint offsets")
#: Spark's operation, and the error, when Python could not parse a source's line.
_PERFORMING, _JSON = "Failed when Python streaming data source perform ", "json.decoder.JSONDecodeError"
_METADATA = re.compile(r"\[STREAMING_CHECKPOINT_MISSING_METADATA_FILE\]")
_NOT_EMPTY = re.compile(
    r"\[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY\] The checkpoint location (?P<folder>[^\n]+?) should"
)
_CONCURRENT = re.compile(_NAMED + "Multiple streaming queries are concurrently using")
#: Exceptions of parsers; the same stack frames raise others for a store that cannot be reached. Only behind the first
#: one is a frame looked for: behind each of them, a stack of a thousand takes seconds.
_PARSER = r"(?>.*?\b(?:fasterxml\.jackson|json4s|NoSuchElementException|NumberFormatException)\b).*"
#: Frames of the stack that show which file was parsed.
_OFFSETS_FRAME = re.compile(_PARSER + r"\bat \S+\bOffsetSeqLog\.deserialize\(", re.DOTALL)
_COMMITS_FRAME = re.compile(_PARSER + r"\bat \S+\bCommitLog\$?\.(?:deserialize|readCommitMetadata)\(", re.DOTALL)
#: Spark 4.2 and newer: the offset log is empty, but the commit log is not.
_NO_OFFSETS_FRAME = re.compile(
    r"\bAssertionError: assertion failed\n.*\n\s*at \S+\bMicroBatchExecution\.initializeExecution\("
)
#: For messages without the file's number.
_NEWEST_OFFSETS = "The newest file in 'offsets' of the checkpoint, or the one before,"
_METADATA_FRAME = re.compile(_PARSER + r"\bat \S+\bStreamMetadata\$\.read\(", re.DOTALL)


def damage(around: str, text: str, stack: str) -> EosError | None:
    """Return the error for Spark's error about a damaged checkpoint; None for all other errors.

    ``around``: Spark's text before the error. ``text``: the error; only its beginning counts, as the rest may quote
    anything. ``stack``: the JVM's.
    """
    path, missing = _PATH.match(text), _MISSING.match(text)
    if path is not None:
        return (_of_offsets if path["log"] == "offsets" else _of_commits)(path["path"])
    if missing is not None:
        return _missing(missing["one"] or missing["other"])
    if (left := _NOT_EMPTY.match(text)) is not None:
        return stop("EOS_CHECKPOINT_DAMAGED.leftover", folder=left["folder"])
    if _CONCURRENT.match(text):
        return _concurrent()
    if _METADATA.match(text):
        return _of_metadata()
    if _NO_SOURCE.match(text) or (_PERFORMING in around and text.startswith(_JSON)):
        return _of_offsets(_NEWEST_OFFSETS)
    # Errors that quote a row come from Python or have one of Spark's conditions; errors of its log parsers have none.
    return None if text.startswith("[") or "Python" in around or "PYTHON" in around else _by_stack(stack)


def _by_stack(stack: str) -> EosError | None:
    if _METADATA_FRAME.match(stack):
        return _of_metadata()
    if _NO_OFFSETS_FRAME.search(stack):
        return _no_offsets()
    if _OFFSETS_FRAME.match(stack):
        return _of_offsets(_NEWEST_OFFSETS)
    if _COMMITS_FRAME.match(stack):
        return _of_commits("The newest file in 'commits' of the checkpoint")
    return None


def _of_offsets(file: str) -> EosError:
    return stop("EOS_CHECKPOINT_DAMAGED.offsets_cut", file=file)


def _no_offsets() -> EosError:
    return stop("EOS_CHECKPOINT_DAMAGED.offsets_gone")


def _missing(batch: str) -> EosError:
    return stop("EOS_CHECKPOINT_DAMAGED.offset_missing", batch=batch)


def _of_commits(file: str) -> EosError:
    return stop("EOS_CHECKPOINT_DAMAGED.commits_cut", file=file)


def _of_metadata() -> EosError:
    return stop("EOS_CHECKPOINT_DAMAGED.metadata")


def _concurrent() -> EosError:
    return stop("EOS_CHECKPOINT_IN_USE.file_exists")
