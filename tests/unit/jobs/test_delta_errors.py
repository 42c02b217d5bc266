"""What Delta says becomes an error by name. The texts are those of Delta 4.4.0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.delta.errors import named
from spark_eos.errors import TableError
from spark_eos.spark.reasons import PLAN

STREAM = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
SAYS = {
    "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:/t/part-0.parquet.":
        "EOS_DELTA_FAILED",
    "[DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (0, 1, 4) are not contiguous.": "EOS_DELTA_LOG_DAMAGED",
    "[DELTA_CONCURRENT_TRANSACTION] ConcurrentTransactionException: This error occurs when multiple streaming queries":
        "EOS_TABLE_TWO_QUERIES",
    "[DELTA_CONCURRENT_APPEND.WITHOUT_HINT] Transaction conflict detected. a concurrent WRITE added data":
        "EOS_DELTA_CONFLICT",
    "[DELTA_FAILED_TO_MERGE_FIELDS] Failed to merge fields 'v' and 'v'": "EOS_DELTA_COLUMNS",
    "[DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS] The schema of your Delta table has changed": "EOS_DELTA_COLUMNS",
    "[DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED] Providing values for GENERATED ALWAYS": "EOS_DELTA_COLUMNS",
    "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint positive (n > 0) violated by row with values: - n : -1":
        "EOS_DELTA_CONSTRAINT",
    "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated for column: n": "EOS_DELTA_CONSTRAINT",
    "[DELTA_EXCEED_CHAR_VARCHAR_LIMIT] Value \"long\" exceeds char/varchar type length limitation":
        "EOS_DELTA_CONSTRAINT",
    "[EXCEED_LIMIT_LENGTH] Exceeds char/varchar type length limitation: 2": "EOS_DELTA_CONSTRAINT",
    "[DELTA_CANNOT_MODIFY_APPEND_ONLY] This table is configured to only allow appends": "EOS_DELTA_CONSTRAINT",
    "[DELTA_UNSUPPORTED_FEATURES_FOR_WRITE] Unsupported Delta write feature": "EOS_DELTA_TOO_NEW",
    "[DELTA_INVALID_PROTOCOL_VERSION] Unsupported Delta protocol version": "EOS_DELTA_TOO_NEW",
    "[DELTA_PATH_DOES_NOT_EXIST] /t doesn't exist, or is not a Delta table": "EOS_DELTA_NO_TABLE",
    "[DELTA_MISSING_DELTA_TABLE] t is not a Delta table": "EOS_DELTA_NO_TABLE",
    "[DELTA_STATE_RECOVER_ERROR] The protocol of your Delta table could not be recovered": "EOS_DELTA_LOG_DAMAGED",
    "[DELTA_MAX_COMMIT_RETRIES_EXCEEDED] This commit has failed as it has been tried 10 times": "EOS_DELTA_CONFLICT",
    "[DELTA_POST_COMMIT_HOOK_FAILED] Committing to the Delta table version 3 succeeded": "EOS_DELTA_FAILED",
}  # fmt: skip


@pytest.mark.parametrize(("text", "condition"), SAYS.items(), ids=lambda text: text.partition("]")[0].strip("["))
def test_what_delta_says_has_a_name(text: str, condition: str) -> None:
    """Delta's own sentence is in the message, and there is always something to do."""
    error = named(Exception(f"{STREAM}{text} SQLSTATE: XXKST\nmore\n{PLAN}\n"))
    assert error is not None and error.condition == condition and error.hint
    assert text.partition("] ")[2].rstrip(".:") in error.message


@given(st.from_regex(r"DELTA_[A-Z0-9]+(_[A-Z0-9]+){0,4}(\.[A-Z_]+)?", fullmatch=True), st.text())
def test_whatever_delta_says_is_no_exception_by_itself(condition: str, text: str) -> None:
    """Also what it says first in its next version: with its own name for it, the table, and something to do."""
    error = named(
        Exception(
            f"An error occurred while calling o557.execute.\n: org.apache.spark.SparkException: [{condition}] {text}"
        ),
        "/a table",
    )
    assert error is not None and error.hint and "\n" not in str(error).rstrip()
    assert f"({condition.partition('.')[0]}, table /a table)" in error.message or "/a table" in text


def test_only_a_conflict_with_another_writer_is_tried_again() -> None:
    """All others need somebody."""
    helped = {condition for text, condition in SAYS.items() if named(Exception(text)).restart_helps}
    assert helped == {"EOS_DELTA_CONFLICT"}


def test_other_errors_keep_their_own_words() -> None:
    """Errors of spark-eos, those of Spark, and what stands in the query's plan."""
    plan = f"[DELTA_CONCURRENT_APPEND] {STREAM}"
    ours = TableError("EOS_DELTA_TABLE_SETTINGS", "It says [DELTA_CONCURRENT_APPEND] x.", hint="h")
    for error in (Exception("[DIVIDE_BY_ZERO] x"), Exception(f"x\n{PLAN}\n{plan}"), ours, Exception(str(ours))):
        assert named(error) is None
