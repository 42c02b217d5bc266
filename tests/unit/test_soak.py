"""What the soak says of rows and of stops: nothing that is wrong may go uncounted."""

from __future__ import annotations

import pytest

from bench.compare import ending
from spark_eos.errors import stop
from tests.chaos.soak import PARTITIONS, judged
from tests.support.kills.query import expected
from tests.unit.spark.test_reasons import STREAM, Captured

ROWS = 2
GOOD = {p: [f"out-{p}.{n}".encode() for n in range(ROWS)] for p in range(PARTITIONS)}


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ([b"out-0.0", b"out-0.1"], {}),
        ([b"out-0.0"], {"lost": 1}),
        ([b"out-0.0", b"out-0.1", b"out-0.0"], {"doubled": 1}),
        ([b"out-0.1", b"out-0.0"], {"out of order": 1}),
        ([b"out-0.0", b"out-0.1", b"out-aborted"], {"aborted visible": 1}),
        ([b"out-0.0", b"out-0.77", b"out-0.1"], {"strange": 1}),
        ([b"out-0.0", b"out-0.1", None, b"\xff", b"out-1.0"], {"strange": 3}),
        ([b"out-0.2", b"out-0.0"], {"lost": 1, "strange": 1}),
    ],
)
def test_whatever_is_wrong_is_counted(values, wrong):
    """A row that nobody fed, or of another partition, hides nothing else."""
    found = judged({**GOOD, 0: values}, ROWS, expected)
    assert {kind: count for kind, count in found.items() if count} == wrong


OURS = stop("EOS_WORKER_DIED.killed", process="A Spark Python worker", how="it was killed or it crashed")
IN_PYTHON = f"[PYTHON_EXCEPTION] An exception was thrown from the Python worker: spark_eos.errors.WorkerError: {OURS}"
CRASH = Captured(
    f"{STREAM}TypeError: no\nsuch thing", cause=Captured("java.lang.IllegalStateException: no\n\tat a.B.c")
)
END_OF_FILE = Captured(f"{STREAM}null", cause=Captured("java.io.EOFException"))


def log_of(error: BaseException, capsys) -> str:
    """What the program prints of its end, behind a warning that has another name, and half a line of the JVM's."""
    with pytest.raises(type(error)), ending.told():
        raise error
    return "WARN EOS_SOURCE_DATA_LOSS warned earlier\nERROR query" + capsys.readouterr().out + "Traceback EOS_OTHER\n"


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (OURS, "EOS_WORKER_DIED"),
        (Captured(STREAM + IN_PYTHON, cause=Captured("java.lang.RuntimeException")), "EOS_WORKER_DIED"),
        (CRASH, "java.lang.IllegalStateException: no"),
        (END_OF_FILE, "java.io.EOFException"),
        (Captured(""), "Captured"),
        (TypeError("no EOS_NAME"), "TypeError: no EOS_NAME"),
    ],
)
def test_a_program_says_by_which_error_its_query_has_ended(error, name, capsys):
    """Its own condition, whatever else the log names; without one, the first cause."""
    assert ending.told_by(log_of(error, capsys)) == name
