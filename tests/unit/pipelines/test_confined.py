"""Calls in a process of their own: what they return and raise, and the ends of a process that its work brings about."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
from pathlib import Path

import pytest

from spark_eos.errors import SchemaError, WorkerError, stop
from spark_eos.pipelines.confined import CallLimits, Confined, OutOfBounds, _group_limits, share_mib

BOUNDS = CallLimits(memory_mib=256, cpu_s=5, time_s=60)


def looping() -> None:
    while True:
        pass


def eating() -> int:
    return len(b"x" * (8 << 30))


def mapping() -> int:
    return len(mmap.mmap(-1, 8 << 30, flags=mmap.MAP_PRIVATE))


def sleeping() -> None:
    signal.pause()


def crashing() -> None:
    ctypes.string_at(0)


def ended(by: signal.Signals) -> None:
    os.kill(os.getpid(), by)


@pytest.fixture
def confined():
    made = Confined(BOUNDS)
    yield made
    made.close()


def test_a_call_returns_and_raises_what_the_function_does(confined):
    """A closure travels as well, what it prints and reads is apart, and one process answers all calls."""
    more = 2

    def adding(number: int) -> tuple[int, int]:
        print("words")
        assert sys.stdin.read() == ""
        return number + more, os.getpid()

    def refusing() -> None:
        raise stop("EOS_TRANSFORM_SQL.not_by_row", why="x")

    (first, pid), (second, same) = confined.call(adding, 1), confined.call(adding, 5)
    assert (first, second, pid) == (3, 7, same) and pid != os.getpid()
    with pytest.raises(SchemaError, match="x") as caught:
        confined.call(refusing)
    assert caught.value.entry == "EOS_TRANSFORM_SQL.not_by_row"
    with pytest.raises(RuntimeError, match="SystemExit"):
        confined.call(sys.exit, 3)
    with pytest.raises(RuntimeError, match="Unpicklable"):
        confined.call(raising_what_does_not_travel)


def raising_what_does_not_travel() -> None:
    class UnpicklableError(Exception):
        """Defined where nobody can import it."""

    raise UnpicklableError


@pytest.mark.parametrize(
    ("function", "bounds", "words"),
    [
        (looping, CallLimits(256, 0.2, 60), "more than 0.2 s of the processor"),
        (sleeping, CallLimits(256, 5, 0.2), "more than 0.2 s"),
        (eating, BOUNDS, "more than 256 MiB"),
        (mapping, BOUNDS, "Cannot allocate memory"),
        (crashing, BOUNDS, "SIGSEGV"),
    ],
)
def test_what_takes_too_much_ends_and_the_next_call_works(function, bounds, words):
    """In another process, where it ended."""
    confined = Confined(bounds)
    with pytest.raises((OutOfBounds, OSError), match=words):
        confined.call(function)
    assert confined.call(len, "abc") == 3
    confined.close()


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_an_end_from_outside_is_no_fault_of_the_call(by, confined):
    """Nobody knows why: as of other Python processes, a restart helps."""
    with pytest.raises(WorkerError) as caught:
        confined.call(ended, by)
    assert (caught.value.condition, caught.value.restart_helps) == ("EOS_WORKER_DIED", True)


def test_a_process_that_cannot_start_is_no_fault_of_the_call(confined, monkeypatch):
    """Else every record would be rejected."""
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(WorkerError):
        confined.call(len, "abc")


def test_the_process_ends_with_its_object(confined):
    """Whatever threads it has: its standard input ends."""
    pid = confined.call(os.getpid)
    confined.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    other = Confined(BOUNDS)
    pid = other.call(os.getpid)
    del other
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


GIB = 1 << 30


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/\n", {"memory.max": "2147483648\n"}, [2 * GIB]),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "1073741824\n"}, [GIB]),
        ("9:memory:/x\n8:pids:/\n0::/\n", {"memory/memory.limit_in_bytes": "1073741824\n"}, [GIB]),
        ("9:cpu,memory:/x\n", {"memory/x/memory.limit_in_bytes": "1073741824\n"}, [GIB]),
        ("0::/\n", {}, []),
        (None, {}, []),
    ],
)
def test_the_limits_of_a_container_are_read(groups, limits, expected, tmp_path: Path):
    """Of version 2 and 1 of control groups, and of those around a process's own."""
    if groups is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in limits.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert _group_limits(tmp_path) == expected


def test_what_spark_gives_comes_first(environ):
    """Its setting spark.executor.pyspark.memory."""
    environ(PYSPARK_EXECUTOR_MEMORY_MB=700)
    assert share_mib() == 700
