"""What Spark says of a damaged checkpoint, as it said it: an error of ours with the file and the next step."""

from __future__ import annotations

import time

import pytest

import spark_eos
from tests.unit.spark.test_reasons import STREAM, Captured

STREAMING = "org.apache.spark.sql.execution.streaming"
CHECKPOINTING = f"{STREAMING}.checkpointing"
CALLING = "An error occurred while calling o1.start.\n: "
JSON = "Unexpected end-of-input in field name\n at [Source: REDACTED; line: 1, column: 58] SQLSTATE: XXKST"
JSON_STACK = "Caused by: com.fasterxml.jackson.core.io.JsonEOFException: Unexpected end-of-input in field name\n"
EMPTY_STACK = "Caused by: java.util.NoSuchElementException: next on empty iterator\n"
OFFSETS_FRAME = f"\tat {CHECKPOINTING}.OffsetSeqLog.deserialize(OffsetSeqLog.scala:100)\n"
COMMITS_FRAME = f"\tat {CHECKPOINTING}.CommitLog$.readCommitMetadata(CommitLog.scala:125)\n"
READS_OFFSETS, READS_COMMITS = JSON_STACK + OFFSETS_FRAME, JSON_STACK + COMMITS_FRAME
READS_METADATA = f"\tat {STREAMING}.runtime.StreamMetadata$.read(StreamMetadata.scala:53)\n"
NO_OFFSETS = f"""java.lang.AssertionError: assertion failed
\tat scala.Predef$.assert(Predef.scala:264)
\tat {STREAMING}.runtime.MicroBatchExecution.initializeExecution(MicroBatchExecution.scala:525)
"""
PLANNING = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform \
planPartitions: Traceback (most recent call last):
  File "json/decoder.py", line 355, in raw_decode
    raise JSONDecodeError("Expecting value", s, err.value) from None
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)
"""


def failed(text: str, stack: str = "", cause: Exception | None = None) -> Captured:
    return Captured(STREAM + text, stack, cause)


@pytest.mark.parametrize(
    ("error", "file", "remedy"),
    [
        (
            failed("Failed to read log file file:/c/offsets/3. Incomplete log file SQLSTATE: X"),
            "/c/offsets/3",
            "plans",
        ),
        (failed("Failed to read log file file:/my disk/offsets/3. Incomplete log file"), "/my disk/offsets/3", "plans"),
        (failed("Failed to read log file s3a://b/c/commits/12. [MALFORMED_LOG_FILE] x"), "c/commits/12", "replays"),
        (failed(JSON, READS_OFFSETS), "in 'offsets'", "plans"),
        (failed(JSON, "no frames", failed("", READS_OFFSETS)), "in 'offsets'", "plans"),
        (failed("next on empty iterator", EMPTY_STACK + OFFSETS_FRAME), "in 'offsets'", "plans"),
        (failed("Checksum error: file:/c/offsets/3 at 0 exp: 1 got: 2"), "/c/offsets/3", "plans"),
        (
            failed("assertion failed: There are [0] sources in the checkpoint offsets and now"),
            "in 'offsets'",
            "plans",
        ),
        (failed(PLANNING), "in 'offsets'", "plans"),
        (failed("assertion failed", NO_OFFSETS), "The checkpoint's 'offsets' has no files", "EOS_CHECKPOINT_BEHIND"),
        (failed(JSON, READS_COMMITS), "in 'commits'", "replays"),
        (failed("batch 2 doesn't exist SQLSTATE: XXKST"), "offsets/2", "backup"),
        (failed("requirement failed: Previous batch 12 not found in offset log"), "offsets/12", "backup"),
        (Exception(f"{CALLING}com.fasterxml.jackson.X: No content\n{READS_METADATA}"), "'metadata'", "id"),
        (Exception(f"{CALLING}org.json4s.MappingException: id\n{READS_METADATA}"), "'metadata'", "id"),
        (
            failed("[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] The checkpoint location file:/c/offsets should be"),
            "file:/c/offsets",
            "Delete these files",
        ),
        (
            failed("[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] The checkpoint location file:/my disk/state should be"),
            "file:/my disk/state",
            "Delete these files",
        ),
        (Exception("[STREAMING_CHECKPOINT_MISSING_METADATA_FILE] Checkpoint location x"), "'metadata'", "id"),
    ],
)
def test_a_damaged_file_has_a_name_and_a_next_step(error, file, remedy):
    """Which of the logs it is decides what helps."""
    found = spark_eos.reason(error)
    assert (found.condition, found.restart_helps) == ("EOS_CHECKPOINT_DAMAGED", False)
    assert file in found.message
    assert remedy in found.hint


def test_a_file_that_is_there_already():
    """Two runs, or a checksum that was left behind."""
    found = spark_eos.reason(failed("Multiple streaming queries are concurrently using file:/c/offsets. SQLSTATE: X"))
    assert found.condition == "EOS_CHECKPOINT_IN_USE"
    assert ".crc" in found.hint


@pytest.mark.parametrize(
    "error",
    [
        failed("There are [1] sources in the checkpoint offsets and now there are [2] sources requested"),
        failed("Failed when Python streaming data source perform planPartitions: ValueError: x"),
        failed("Failed to read log file file:/c/sources/0/5. It has: offsets/3"),
        failed("x json.decoder.JSONDecodeError: of somebody's function"),
        Exception(f"{CALLING}java.io.IOException: unreachable\n{READS_METADATA}"),
        failed("assertion failed", NO_OFFSETS.replace("initializeExecution", "runBatch")),
        failed("unreachable", f"Caused by: java.io.IOException: unreachable\n{OFFSETS_FRAME}"),
        failed("unreachable", f"Caused by: java.net.SocketTimeoutException: unreachable\n{COMMITS_FRAME}"),
    ],
)
def test_what_is_no_damage_is_left_alone(error):
    """A changed query, an error of a function, a store that cannot be reached."""
    assert spark_eos.reason(error) is None


def test_a_deep_stack_of_a_parser_is_read_once():
    """As of a row that is nested too deeply: each of its frames names the parser."""
    stack = "java.lang.StackOverflowError\n" + 2048 * "\tat com.fasterxml.jackson.databind.deser.X.y(X.java:1)\n"
    begin = time.process_time()
    assert spark_eos.reason(failed("null", stack)) is None
    assert time.process_time() - begin < 2
