"""Calls functions on untrusted records in a separate Python process, with limits of time and memory.

One record can make a function loop for ever, take all memory, or overflow DuckDB's stack. The operating system's limits
end the process, and the caller goes on. The process is not forked, as the driver's threads may hold locks.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from spark_eos.errors import stop

T = TypeVar("T")

_MAIN = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from spark_eos.pipelines.confined import main; main()"
#: The process writes this byte when it is ready for calls.
_READY = b"."
#: Signals by which a process ends due to its own work. For others, such as SIGKILL, the cause is unknown.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)


class OutOfBounds(Exception):
    """A call that took more than it may, or at which the process crashed."""


@dataclass(frozen=True)
class CallLimits:
    """Limits of a call: memory beyond the libraries' own, CPU time, and wall-clock time."""

    memory_mib: int
    cpu_s: float
    time_s: float


class Confined:
    """A process for calls, started at the first one, and again after one at which it has ended. It ends with its
    object, or with this process."""

    def __init__(self, bounds: CallLimits) -> None:
        self._bounds = bounds
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call the function in the other process, and return its result or raise its exception. Function and arguments
        are pickled with Spark's cloudpickle. Raises OutOfBounds, and WorkerError where the process has ended for
        another reason."""
        from pyspark import cloudpickle

        request = cloudpickle.dumps((function, arguments))  # type: ignore[no-untyped-call]  # PySpark's
        process = self._process = self._process or _started(self._bounds)
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(request)
            process.stdin.flush()
            result, error = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self.close()
            raise _why(process.returncode, self._bounds) from None
        except BaseException:  # an answer may still come
            self.close()
            raise
        if error is not None:
            raise error
        done: T = result
        return done

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        process.stdout.close()
        with suppress(OSError):  # closing fails if input is unread
            process.stdin.close()
        try:
            process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _started(bounds: CallLimits) -> subprocess.Popen[bytes]:
    limits = json.dumps([bounds.memory_mib, bounds.cpu_s, bounds.time_s])
    process = subprocess.Popen(
        [sys.executable, "-c", _MAIN, json.dumps(sys.path), limits],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,  # a signal to this process's group, as of Ctrl-C, is not for it
    )
    assert process.stdout is not None
    if process.stdout.read(1) != _READY:
        process.wait()
        raise stop("EOS_WORKER_DIED.killed", process="A Spark Python worker", how="it was killed or it crashed")
    return process


def _why(status: int, bounds: CallLimits) -> Exception:
    if status == -signal.SIGPROF:
        return OutOfBounds(f"it takes more than {bounds.cpu_s:g} s of the processor")
    if status == -signal.SIGALRM:
        return OutOfBounds(f"it takes more than {bounds.time_s:g} s")
    if -status in _CRASHES:
        return OutOfBounds(f"its process crashed by {signal.Signals(-status).name}")
    return stop("EOS_WORKER_DIED.killed", process="A Spark Python worker", how="it was killed or it crashed")


def share_mib() -> int:
    """Return MiB of memory for a Python process: Spark's setting for an executor's Python processes, or this process's
    share by processor of the machine or its control group."""
    given = int(os.environ.get("PYSPARK_EXECUTOR_MEMORY_MB", "0"))
    if given > 0:
        return given
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (min([pages, *_group_limits(Path("/"))]) >> 20) // (os.cpu_count() or 1)


def _group_limits(root: Path) -> list[int]:
    """Return the memory limits, in bytes, of this process's control groups and their parents. Within a container, the
    path that the system names may not exist."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for _, kinds, path in (line.split(":", 2) for line in lines):
        if kinds and "memory" not in kinds.split(","):
            continue
        top, name = ("memory", "memory.limit_in_bytes") if kinds else ("", "memory.max")
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            try:
                text = (root / "sys/fs/cgroup" / top / folder / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal():
                found.append(int(text))
    return found


# In the process


def main() -> None:
    """Answer calls until the standard input ends. Output that the calls print goes to the standard error."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    bounds = CallLimits(*json.loads(sys.argv[2]))
    _limit_memory(bounds.memory_mib)
    answers.write(_READY)
    answers.flush()
    while (answer := _answer(requests, bounds)) is not None:
        answers.write(answer)
        answers.flush()
    os._exit(0)  # does not wait for threads that a call left behind


def _limit_memory(mib: int) -> None:
    """Limit memory beyond the libraries' own. Linux counts writable memory."""
    import pyarrow  # noqa: F401  # so that its own memory is not counted

    try:
        held = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = held + (mib << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


def _answer(requests: BinaryIO, bounds: CallLimits) -> bytes | None:
    """Return the pickled answer to the next call: its result and its error, one of them None. None where there is no
    call."""
    try:
        if not requests.peek(1):  # type: ignore[attr-defined]  # it is buffered
            return None
        function, arguments = pickle.load(requests)  # imports the function's modules, without a time limit
        signal.setitimer(signal.ITIMER_PROF, bounds.cpu_s)  # the signals end the process
        signal.setitimer(signal.ITIMER_REAL, bounds.time_s)
        return pickle.dumps((function(*arguments), None))
    except MemoryError:
        return pickle.dumps((None, OutOfBounds(f"it needs more than {bounds.memory_mib} MiB of memory")))
    except BaseException as error:
        return _pickled(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _pickled(error: BaseException) -> bytes:
    """Return an error as an answer; one that cannot travel, by its type alone."""
    plain = error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
    try:
        data = pickle.dumps((None, plain))
        pickle.loads(data)
    except Exception:
        data = pickle.dumps((None, RuntimeError(type(error).__name__)))
    return data
