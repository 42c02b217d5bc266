"""What the system has refused, as Spark's exceptions say it."""

from __future__ import annotations

import errno
import os

import pytest

import spark_eos
from tests.unit.spark.test_reasons import AROUND, STREAM, TRACE, Captured

FULL, AWAY = "EOS_SYSTEM_FULL", "EOS_SYSTEM_UNREACHABLE"
#: By the system's number: its condition.
NUMBERS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM), FULL),
    **dict.fromkeys((errno.EROFS, errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.EHOSTDOWN, errno.ETIMEDOUT), AWAY),
}
#: How Java, Spark and Python put these words.
FORMS = (
    STREAM + "{} SQLSTATE: XXKST",
    "{}\n=== Streaming Query ===\n",
    STREAM + "java.io.IOException: {}",
    STREAM + "/c/offsets/.3.tmp ({}) SQLSTATE: XXKST",
    STREAM + "java.nio.file.FileSystemException: /c/offsets/.3.tmp -> /c/offsets/3: {}",
    STREAM + "file:/c/offsets/.3.tmp: {}",
    "An error occurred while calling o1.start.\n: java.io.FileNotFoundException: /c/metadata ({})\n\tat y",
    AROUND["a task that was tried four times"].partition("org.apache.spark")[0] + "java.io.IOException: {}\n\tat x",
    STREAM + 'Cannot run program "python3": error=12, {}',
    AROUND["a task"] + TRACE + "{python}: '/tmp/x'\n SQLSTATE: 38000",
    AROUND["foreachBatch"] + "py4j.protocol.Py4JJavaError: An error occurred while calling o557.execute.\n"
    ": org.apache.spark.SparkException: {}\n\tat y",
)
STATE = "[CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Cannot perform commit during writing checkpoint of state store x."


@pytest.mark.parametrize("form", FORMS)
def test_what_the_system_has_refused_is_named(form):
    """In each form, with what it was refused for."""
    for number, condition in NUMBERS.items():
        error = OSError(number, os.strerror(number))
        python = f"{type(error).__name__}: {error}"
        found = spark_eos.reason(Exception(form.format(os.strerror(number), python=python)))
        assert (found.condition, found.restart_helps) == (condition, True)
        assert os.strerror(number) in found.message


@pytest.mark.parametrize("text", ["Error while writing.", STATE, "[TASK_WRITE_FAILED] Task failed while writing rows."])
def test_what_the_system_has_refused_is_named_where_it_is_the_cause(text):
    """Of an error of Spark's own, as of a state store; in the stack of the error, or of its cause."""
    stack = "org.apache.spark.X: y\n\tat a.B\nCaused by: java.io.IOException: No space left on device\n\t... 3 more\n"
    for error in (Captured(STREAM + text, stack), Captured(STREAM + text, "", Captured(text, stack))):
        assert spark_eos.reason(error).condition == FULL


@pytest.mark.parametrize(
    ("cause", "condition"),
    [
        ("java.net.ConnectException: Call From a to b:8020 failed on connection exception: refused", AWAY),
        ("java.net.UnknownHostException: store.example", AWAY),
        ("java.net.SocketTimeoutException: Read timed out", AWAY),
        ("java.net.NoRouteToHostException: No Route to Host from a to b", AWAY),
        ("org.apache.hadoop.hdfs.server.namenode.SafeModeException: Cannot create /c", AWAY),
        ("org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.hdfs.server.namenode.SafeModeException): no", AWAY),
        ("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException: The DiskSpace quota of /c is exceeded", FULL),
    ],
)
def test_a_store_that_is_away_is_named(cause, condition):
    """Of Hadoop's file systems, which the stack shows; other connections may be of anybody."""
    for frame, ours in (
        ("org.apache.hadoop.fs.FileSystem.create(F.java:1)", True),
        ("x.jdbc.Driver.y(D.java:1)", False),
    ):
        stack = f"{cause}\n\tat java.base/sun.nio.X.y(X.java:1)\n\tat {frame}\n"
        for error in (
            Captured(STREAM + cause.partition(": ")[2], f"a.B: c\nCaused by: {stack}"),
            Exception(f"An error occurred while calling o1.start.\n: {stack}"),
        ):
            found = spark_eos.reason(error)
            assert (found and found.condition) == (condition if ours else None)


@pytest.mark.parametrize(
    "text",
    [
        "[CAST_INVALID_INPUT] The value '\nCaused by: java.io.IOException: No space left on device\n' cannot be cast.",
        "[USER_RAISED_EXCEPTION] No space left on device",
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: ValueError: No space left on device",
        "a record: No space left on device",
    ],
)
def test_a_record_that_an_error_quotes_is_no_refusal(text):
    """Whatever is in it, also in the stack, which repeats the text."""
    assert (
        spark_eos.reason(Captured(STREAM + text, f"org.apache.spark.X: {text}\n\tat org.apache.hadoop.fs.X.y")) is None
    )
