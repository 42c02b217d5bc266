"""The error of spark-eos inside what Spark raises."""

from __future__ import annotations

import sys

import pytest

import spark_eos
from spark_eos.errors import Superseded, TransactionLost
from spark_eos.reasons import Reason

OURS = Reason("EOS_SUPERSEDED", "Another run has taken over.", "Stop this one.", restart_helps=False)
TEXT = "[EOS_SUPERSEDED] Another run has taken over. Hint: Stop this one."
IN_SPARK = f"""[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Error in Python: Traceback (…):
  File "pyspark/worker.py", line 1, in main
    writer.commit(messages, batch)
spark_eos.errors.Superseded: {TEXT}
 SQLSTATE: XXKST
"""


def test_an_error_of_ours_is_its_own_reason():
    """Condition, message and hint as they were given."""
    error = Superseded("EOS_SUPERSEDED", "Another run has taken over.", hint="Stop this one.")
    assert spark_eos.reason(error) == OURS
    assert str(OURS) == str(error) == TEXT


def test_the_reason_is_found_inside_what_spark_raises():
    """Between a traceback and Spark's own state."""
    assert spark_eos.reason(Exception(IN_SPARK)) == OURS


@pytest.mark.parametrize(
    ("module", "ours"), [("spark_eos.source", True), ("pyarrow", True), ("numpy_financial", False), ("theirs", False)]
)
def test_an_executor_without_the_package(module, ours):
    """A worker's stack names the module; other modules are somebody else's."""
    found = spark_eos.reason(Exception(f"[X] …\nModuleNotFoundError: No module named '{module}'\n SQLSTATE: 38000"))
    assert (found is not None) == ours
    if found is not None:
        assert (found.condition, found.restart_helps) == ("EOS_EXECUTOR_WITHOUT_PACKAGE", False)
        assert f"'{module.partition('.')[0]}'" in found.message


def test_a_reason_says_whether_a_restart_helps():
    """Of an error as of its text."""
    lost = TransactionLost("EOS_TRANSACTION_LOST", "Two were aborted.", hint="Start it again.")
    found = [spark_eos.reason(lost), spark_eos.reason(Exception(f"x\n{lost}\n")), spark_eos.reason(Exception(TEXT))]
    assert [reason.restart_helps for reason in found] == [True, True, False]
    assert lost.restart_helps


def test_the_plan_that_spark_prints_is_no_reason():
    """A query may hold the text of an error as a literal."""
    assert spark_eos.reason(Exception(f"[OTHER] x\n=== Streaming Query ===\nplan: {TEXT}")) is None


@pytest.mark.parametrize(
    ("text", "condition", "says"),
    [
        ("requirement failed: eos-kafka does not support Update mode. SQLSTATE: X", "EOS_UPDATE_MODE", "withWatermark"),
        ("Data source eos-kafka does not support continuous processing.", "EOS_CONTINUOUS_TRIGGER", "processingTime"),
        (
            '[UNSUPPORTED_…_MODE] The data source "eos-kafka" cannot be written in the "ErrorIfExists" mode.',
            "EOS_WRITE_MODE",
            '.mode("append"); within foreachBatch, use spark_eos.batch_writer',
        ),
        ("[X] Failed to find the data source: eos-kafka. Make sure …", "EOS_FORMAT_NOT_FOUND", sys.executable),
    ],
)
def test_what_spark_refuses_by_itself_has_our_reason(text, condition, says):
    """Its text has no way out, or a wrong one."""
    found = spark_eos.reason(Exception(text))
    assert (found.condition, found.restart_helps) == (condition, False)
    assert says in found.hint
    assert spark_eos.reason(Exception(text.replace("eos-kafka", "console"))) is None


def test_a_worker_that_died_is_a_reason_to_start_again():
    """Spark says no more than that it is gone; nothing was decided by it."""
    text = "Python worker exited unexpectedly (crashed). Consider setting …"
    found = spark_eos.reason(Exception(f"[STREAM_FAILED] Query x terminated with exception: {text}"))
    assert (found.condition, found.restart_helps) == ("EOS_WORKER_DIED", True)
    assert "out-of-memory" in found.hint


def test_a_worker_that_does_not_start_in_time_is_a_reason_to_start_again():
    """As on a machine that has too much to do."""
    found = spark_eos.reason(Exception("[STREAM_FAILED] Query x …: Python worker failed to connect back. SQLSTATE: X"))
    assert (found.condition, found.restart_helps) == ("EOS_WORKER_LATE", True)


def test_an_error_without_one_of_ours_has_no_reason():
    """Errors of others are left alone."""
    assert spark_eos.reason(ValueError("x")) is None
