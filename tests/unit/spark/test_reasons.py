"""The error of spark-eos inside what Spark raises."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spark_eos
from spark_eos.errors import Superseded, TransactionLost
from spark_eos.spark.reasons import Reason

OURS = Reason("EOS_SUPERSEDED", "Another run has taken over.", "Stop this one.", restart_helps=False)
TEXT = "[EOS_SUPERSEDED] Another run has taken over. Hint: Stop this one."
IN_PYTHON = f"spark_eos.errors.Superseded: {TEXT}"
TRACE = """Traceback (most recent call last):
  File "spark_eos/sink/writer.py", line 72, in write
    report = self._run(job, attempt, batches)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""
STREAM = "[STREAM_FAILED] Query [id = 1c-2, runId = 3d-4] terminated with exception: "
#: Spark's words before an error of Python's, as its versions have printed them; the last one only before a traceback.
AROUND = {
    "a task": f"{STREAM}[PYTHON_EXCEPTION] An exception was thrown from the Python worker: ",
    "a named query": STREAM.replace("[id", "my query [id")
    + "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: ",
    "a task of a batch": "An exception was thrown from the Python worker:\n",
    "a task that was tried four times": f"{STREAM}Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 "
    "times, most recent failure: Lost task 0.3 in stage 1.0 (TID 7) (127.0.0.1 executor 0): "
    "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: ",
    "a job without a data frame": "An error occurred while calling z:org.apache.spark.api.python.PythonRDD."
    "collectAndServe.\n: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed "
    "1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 7) (127.0.0.1 executor driver): "
    "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: ",
    "the start of a write": f"{STREAM}[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: ",
    "a source": f"{STREAM}[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source "
    "perform initialOffset: ",
    "Spark Connect": "(org.apache.spark.sql.streaming.StreamingQueryException) " + STREAM,
    "exception() of Spark Connect": "(STREAM_FAILED) " + STREAM,
    "foreachBatch of Spark Connect": f"{STREAM}[PYTHON_EXCEPTION] [session: 7-9] [userId: ] Found error inside "
    f"foreachBatch Python process: {TRACE}",
    "foreachBatch": f"{STREAM}[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in "
    f"foreach batch sink. Reason: An exception was raised by the Python Proxy. Return Message: {TRACE}",
    "foreachBatch, by what Spark raises in it": f"{STREAM}[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the "
    "user provided function in foreach batch sink. Reason: An exception was raised by the Python Proxy. Return "
    f"Message: {TRACE}pyspark.errors.exceptions.captured.AnalysisException: [PYTHON_DATA_SOURCE_ERROR] Failed to "
    "initialize Python data source writer: ",
}
#: Errors of others that quote a record.
QUOTING = (
    STREAM
    + '[CAST_INVALID_INPUT] The value \'{}\' of the type "STRING" cannot be cast to "INT" because it is malformed.',
    STREAM + "[USER_RAISED_EXCEPTION] {}",
    STREAM + "[FAILED_EXECUTE_UDF] User defined function (`f`) failed due to: java.lang.NumberFormatException: {}.",
    "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected in record parsing: {}.",
    *(
        AROUND[where] + error
        for where in AROUND
        if where not in ("Spark Connect", "exception() of Spark Connect")
        for error in (
            "ValueError: {}",
            TRACE + "ValueError: {}",
            TRACE
            + "a.B: {}\n\nThe above exception was the copied_from cause of the following exception:\n\n"
            + TRACE
            + "X: {}",
            TRACE + "json.decoder.JSONDecodeError: {}",
        )
        if not (where == "a source" and "JSON" in error)  # that is a line of the offset log
    ),
)
#: What makes a reason where Spark or this package says it.
TELLING = (
    TEXT,
    TEXT.replace("SUPERSEDED", "RUN_CLOSED"),
    IN_PYTHON,
    IN_PYTHON.replace("SUPERSEDED", "RUN_CLOSED"),
    TRACE + IN_PYTHON,
    AROUND["a task"] + IN_PYTHON,
    "Python worker exited unexpectedly (crashed)",
    "Python worker failed to connect back",
    "ModuleNotFoundError: No module named 'pyarrow'",
    "Multiple streaming queries are concurrently using file:/c",
    "Failed to read log file file:/c/offsets/3",
    "[STREAMING_CHECKPOINT_MISSING_METADATA_FILE]",
    "There are [0] sources in the checkpoint offsets",
    "\tat org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqLog.deserialize(OffsetSeqLog.scala:100)",
    "com.fasterxml.jackson.core.io.JsonEOFException: x",
    "eos-kafka does not support Update mode",
)


def test_an_error_of_ours_is_its_own_reason():
    """Condition, message and hint as they were given."""
    error = Superseded("EOS_SUPERSEDED", "Another run has taken over.", hint="Stop this one.")
    assert spark_eos.reason(error) == OURS
    assert str(OURS) == str(error) == TEXT


@pytest.mark.parametrize(
    "end", ["", "\n SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nplan", "\n\nJVM stacktrace:\n"]
)
@pytest.mark.parametrize("where", AROUND)
@pytest.mark.parametrize("trace", ["", TRACE])
def test_the_reason_is_found_inside_what_spark_raises(where, trace, end):
    """Behind Spark's own words and, where it is not hidden, a traceback; before Spark's own state."""
    if not (trace and AROUND[where].endswith(TRACE)):
        assert spark_eos.reason(Exception(AROUND[where] + trace + IN_PYTHON + end)) == OURS


@given(
    quoting=st.sampled_from(QUOTING),
    record=st.lists(st.one_of(st.text(max_size=20), st.sampled_from(TELLING)), min_size=1, max_size=4),
    joined=st.sampled_from(["", "\n", " ", "'\n", ": "]),
)
def test_a_record_that_an_error_quotes_is_no_reason(quoting, record, joined):
    """Whatever is in it: otherwise whoever writes records would choose whether a query is started again, or what
    somebody does to its checkpoint."""
    error = Exception(quoting.replace("{}", joined.join(["", *record])))
    error._stackTrace = str(error)
    assert spark_eos.reason(error) is None


@pytest.mark.parametrize(
    ("module", "ours"), [("spark_eos.source", True), ("pyarrow", True), ("numpy_financial", False), ("theirs", False)]
)
def test_an_executor_without_the_package(module, ours):
    """A worker's stack names the module; other modules are somebody else's."""
    found = spark_eos.reason(
        Exception(
            f"{AROUND['the start of a write']}{TRACE}ModuleNotFoundError: No module named '{module}'\n SQLSTATE: 38000"
        )
    )
    assert (found is not None) == ours
    if found is not None:
        assert (found.condition, found.restart_helps) == ("EOS_NOT_ON_WORKERS", False)
        assert f"'{module.partition('.')[0]}'" in found.message


def test_an_executor_whose_daemon_is_not_there():
    """Where the daemon that forks workers is that of this package, no worker comes as far as to import it."""
    around = AROUND["a task that was tried four times"].partition("org.apache.spark")[0]
    found = spark_eos.reason(
        Exception(
            f"{around}org.apache.spark.SparkException: \nError from python worker:\n  /opt/my env/bin/python: Error "
            "while finding module specification for 'spark_eos.worker_daemon' (ModuleNotFoundError: No module named "
            "'spark_eos')"
            "\nPYTHONPATH was:\n  /opt/spark/python/lib/pyspark.zip\norg.apache.spark.SparkException: EOFException "
            "occurred while reading the port number from spark_eos.worker_daemon's stdout.\n\tat org.apache"
        )
    )
    assert found is not None and (found.condition, found.restart_helps) == ("EOS_NOT_ON_WORKERS", False)
    assert "'spark_eos'" in found.message


def test_a_reason_says_whether_a_restart_helps():
    """The reason of an error is that of its text."""
    lost = TransactionLost("EOS_TRANSACTION_LOST", "Two were aborted.", hint="Start it again.")
    found = [
        spark_eos.reason(lost),
        spark_eos.reason(Exception(f"{STREAM}spark_eos.errors.TransactionLost: {lost}\n")),
        spark_eos.reason(Exception(IN_PYTHON)),
    ]
    assert [reason.restart_helps for reason in found] == [True, True, False]
    assert lost.restart_helps


def test_an_error_without_one_of_ours_has_no_reason():
    """Nor has one whose plan is printed: a query may hold the text of an error as a literal."""
    assert spark_eos.reason(ValueError("x")) is None
    assert spark_eos.reason(Exception(f"[OTHER] x\n=== Streaming Query ===\nplan: {TEXT}")) is None


@pytest.mark.parametrize(
    ("text", "condition", "says"),
    [
        (
            "requirement failed: eos-kafka does not support Update mode. SQLSTATE: X",
            "EOS_USE_UNSUPPORTED",
            "withWatermark",
        ),
        ("Data source eos-kafka does not support continuous processing.", "EOS_USE_UNSUPPORTED", "processingTime"),
        (
            '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] The data source "eos-kafka" cannot be written in the "Ignore" mode.',
            "EOS_USE_UNSUPPORTED",
            'Use .mode("append")',
        ),
        (
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: eos-kafka. Make sure …",
            "EOS_NOT_ON_WORKERS",
            sys.executable,
        ),
        (
            "An error occurred while calling o32.load.\n: org.apache.spark.SparkClassNotFoundException: "
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: eos-kafka. Make sure …",
            "EOS_NOT_ON_WORKERS",
            sys.executable,
        ),
    ],
)
def test_what_spark_refuses_by_itself_has_our_reason(text, condition, says):
    """Its text has no way out, or a wrong one."""
    found = spark_eos.reason(Exception(text))
    assert (found.condition, found.restart_helps) == (condition, False)
    assert says in found.hint
    assert spark_eos.reason(Exception(text.replace("eos-kafka", "console"))) is None


OF_SQL = "org.apache.spark.sql.execution"
READ = "\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)\n"
#: By the process that was killed: the first frame of Spark in the stack of the exception.
FRAMES = {
    "source": f"{OF_SQL}.python.streaming.PythonStreamingSourceRunner.latestOffset(P.scala:235)",
    "source of Spark 4.0": f"{OF_SQL}.python.PythonStreamingSourceRunner.partitions(P.scala:9)",
    "reading of an answer": "org.apache.spark.api.python.PythonWorkerUtils$.readUTF(PythonWorkerUtils.scala:1)",
    "daemon": "org.apache.spark.api.python.PythonWorkerFactory.$anonfun$stopWorker$1(P.scala:501)",
    "foreachBatch of Connect": "org.apache.spark.sql.connect.planner.StreamingForeachBatchHelper$.x(S.scala:1)",
}


class Captured(Exception):
    """As PySpark's errors are: a text, beside it the stack of the JVM, and a cause."""

    def __init__(self, text: str, stack: str = "", cause: Exception | None = None) -> None:
        super().__init__(text)
        self._stackTrace, self._cause = stack, cause


@pytest.mark.parametrize(
    "said", ["net.SocketException: Connection reset", "io.IOException: Broken pipe", "io.EOFException"]
)
@pytest.mark.parametrize("killed", FRAMES)
def test_a_python_process_that_is_killed_while_spark_talks_to_it(killed, said):
    """Spark passes on what its socket says, with the process in the stack alone: of the error, of its cause, or in the
    text of Py4J's. The same words with another stack are somebody else's."""
    text = said.partition(": ")[2] or "null"
    for frame, ours in (
        (FRAMES[killed], True),
        (f"{OF_SQL}.jdbc.X.y(X.scala:1)", False),
    ):
        stack = f"java.{said}\n{READ}\tat {frame}\n"
        errors = (
            Captured(f"{STREAM}{text} SQLSTATE: XXKST", f"java.lang.X: y\nCaused by: {stack}"),
            Captured(f"{text}\n=== Streaming Query ===\n", "", Captured(text, stack)),
            Exception(f"An error occurred while calling o1.load.\n: {stack}"),
        )
        for error in errors:
            found = spark_eos.reason(error)
            assert (found and found.condition) == ("EOS_WORKER_DIED" if ours else None)


PORT = "EOFException occurred while reading the port number from pyspark.daemon's stdout and terminated with code: "


KILLED = "out-of-memory"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Python worker exited unexpectedly (crashed). Consider setting …", KILLED),
        ("Python worker failed to connect back. SQLSTATE: X", "too much to do"),
        (f"{PORT}137.", KILLED),
        (f"{PORT}1.", None),
        (
            "\nError from python worker:\n  a warning\nPYTHONPATH was:\n  /a\n"
            f"org.apache.spark.SparkException: {PORT}137.",
            KILLED,
        ),
        ("[session: 7-9] [userId: ann] Python worker exited unexpectedly (crashed)", KILLED),
        (
            "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch "
            "sink. Reason: [session: 7-9] [userId: ] Python worker exited unexpectedly (crashed)",
            KILLED,
        ),
    ],
)
def test_a_python_process_that_is_killed_as_spark_says_it(text, hint):
    """A worker, also one that does not start in time on a busy machine; the daemon of workers before it has told its
    port, but not one that ends by an error of its own; and the process of foreachBatch on a server of Spark Connect."""
    found = spark_eos.reason(Exception(STREAM + text))
    assert (found and (found.condition, found.restart_helps)) == (("EOS_WORKER_DIED", True) if hint else None)
    assert found is None or hint in found.hint
