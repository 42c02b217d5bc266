"""A process that has imported the modules of Spark's Python processes, and forks them.

For the first micro-batch of a query Spark starts seven Python processes, most of them one after the other: one looks
for the format, others plan, read, write and commit. Each imports PySpark, pyarrow and spark_eos, for half a second to a
second of processor time. The server imports them once, while Spark's JVM starts, and each process is a fork of it.

A fork must equal a new process. So the server accepts only requests that differ from itself in the variables alone that
Spark sets for each process. Any other process, for example with other variables, is started as a new one
(`forked_python`). The server ends when its parent process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from spark_eos.datasource.preload import MODULES, preload, reseed

from . import forked_python
from .forked_python import ACCEPTED, ANSWER_S

#: The Python to start, for PySpark and for Spark.
_PYTHON = "PYSPARK_PYTHON"
#: Other variables and settings that name a Python executable.
_CHOSEN = ("PYSPARK_DRIVER_PYTHON", "spark.pyspark.python", "spark.pyspark.driver.python")
#: Settings of the variables of workers.
_EXECUTORS = "spark.executorEnv."
#: Variables that Spark sets for workers, where the user has not.
_SET_BY_SPARK = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
#: Prefixes of variables that Spark sets for each process; spark-eos's own have another prefix.
_OF_SPARK = ("SPARK_", "PYSPARK_", "_PYSPARK_", "PYTHON_")
_OF_SPARK_EOS = "SPARK_EOS_"
#: Variables that are compared in another way, or that a shell sets.
_OTHERS = frozenset({"PYTHONPATH", "PYTHONUNBUFFERED", "_", "SHLVL", "PWD", "OLDPWD"})
#: Whose standard input is open, so that they run.
_running: list[subprocess.Popen[bytes]] = []
#: The thread of Arrow's memory allocator, which starts anew in a fork.
_ALLOCATOR = "jemalloc_bg_thd"


# In the job's process


@contextmanager
def used(settings: Mapping[str, str]) -> Iterator[None]:
    """Have a session with these settings, which starts within the block, start Python processes by a server.

    Nothing changes where the user has chosen a Python other than this one, where the session is not on this machine, or
    where the system cannot do it.
    """
    ours = os.environ.get(_PYTHON) == sys.executable and not any(name in os.environ | settings for name in _CHOSEN)
    here = settings.get("spark.master", "").startswith("local") and sys.platform == "linux"
    program = start(settings) if ours and here and hasattr(os, "pidfd_open") else None
    if program is None:
        yield
        return
    os.environ[_PYTHON] = program
    try:
        yield
    finally:
        os.environ[_PYTHON] = sys.executable


def start(settings: Mapping[str, str]) -> str | None:
    """Start a server for a session with these settings. The program to start Python by; None where there cannot be one.

    It is in a folder that only this user can enter, and that the server deletes at its end.
    """
    added = {name: os.environ.get(name, default) for name, default in _SET_BY_SPARK.items()}
    added |= {name.removeprefix(_EXECUTORS): text for name, text in settings.items() if name.startswith(_EXECUTORS)}
    try:
        folder = Path(tempfile.mkdtemp(prefix="spark-eos-python-"))
    except OSError:
        return None
    try:
        program = folder / "python"
        words = [sys.executable, "-I", "-S", forked_python.__file__, str(folder / "socket"), sys.executable]
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o700)
        if not os.access(program, os.X_OK):
            raise PermissionError("the file system does not let programs be started")
        with socket.socket(socket.AF_UNIX) as listener, _without_sigterm():
            listener.bind(f"{folder}/socket")
            listener.listen()  # so that the server can be asked from now on
            server = subprocess.Popen(
                [sys.executable, "-u", "-m", __name__, str(folder), str(listener.fileno()), *added],
                env={**os.environ, **added},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                process_group=0,  # a signal to the job's group is not for it: Spark still needs it
            )
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        return None
    _running.append(server)
    return str(program)


@contextmanager
def _without_sigterm() -> Iterator[None]:
    """Block SIGTERM: processes that start meanwhile inherit this from their first moment on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def pids() -> list[int]:
    """Return the process ids of the servers that this process has started."""
    return [server.pid for server in _running]


# In the server


@dataclass(frozen=True)
class _Request:
    folder: str
    arguments: Sequence[str]
    environ: Mapping[str, str]


class ForkServer:
    """The server, in its own process. ``added``: the variables that only some of Spark's processes have. ``lock``: a
    descriptor that forks close."""

    def __init__(self, listener: socket.socket, added: Sequence[str], lock: int) -> None:
        self._listener, self._added, self._lock = listener, added, lock
        self._folder, self._environ = str(Path.cwd()), dict(os.environ)
        self._forks: dict[int, tuple[int, socket.socket]] = {}

    def run(self) -> None:
        """Fork on request, until the standard input ends."""
        poller = select.poll()
        poller.register(0, select.POLLIN)
        poller.register(self._listener, select.POLLIN)
        while True:
            for fd, _ in poller.poll():
                if fd == 0:
                    return
                if fd != self._listener.fileno():
                    poller.unregister(fd)
                    self._ended(fd)
                elif (fork := self._accept(self._listener.accept()[0])) is not None:
                    poller.register(fork, select.POLLIN)

    def _accept(self, client: socket.socket) -> int | None:
        """Fork a process for the client. Returns a descriptor that becomes readable when the fork has ended; None for
        no fork."""
        with contextlib.suppress(OSError, ValueError):
            client.settimeout(ANSWER_S)
            with client.makefile("rb") as sent:
                request = _read(sent)
            if self._is_as_here(request) and _may_fork():
                client.sendall(ACCEPTED)
                received, streams, _, _ = socket.recv_fds(client, 1, 3)  # nothing, from a client that has given up
                try:
                    if received == ACCEPTED:
                        return self._fork(client, request, streams)
                finally:
                    for stream in streams:
                        os.close(stream)
        client.close()
        return None

    def _is_as_here(self, request: _Request) -> bool:
        """Return whether a new process would be the same as a fork of this one."""
        environ = request.environ
        names = {name for name in (*environ, *self._environ) if _is_compared(name)}
        lacking = {name for name in self._added if name not in environ}
        differ = {name for name in names - lacking if environ.get(name) != self._environ.get(name)}
        return request.folder == self._folder and not differ and _path(environ) == _path(self._environ)

    def _fork(self, client: socket.socket, request: _Request, streams: Sequence[int]) -> int:
        pid = os.fork()
        if pid == 0:
            self._become(client, request, streams)
        fork = os.pidfd_open(pid)
        self._forks[fork] = pid, client
        with contextlib.suppress(OSError):
            client.sendall(b"%d\n" % pid)
        return fork

    def _ended(self, fork: int) -> None:
        pid, client = self._forks.pop(fork)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(OSError):
            client.sendall(b"%d\n" % (code if code >= 0 else 128 - code))
        client.close()
        os.close(fork)

    def _become(self, client: socket.socket, request: _Request, streams: Sequence[int]) -> NoReturn:
        """Run, in the fork, the requested process to its end."""
        code = 1
        try:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            for opened in (client, self._listener, *(other for _, other in self._forks.values())):
                opened.close()
            for fd in (self._lock, *self._forks):
                os.close(fd)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # Spark ends the fork by it
            os.environ.clear()
            os.environ.update(request.environ)
            reseed()
            sys.argv[:] = request.arguments
            runpy.run_module(request.arguments[0], run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except ConnectionError:
            pass  # Spark has closed the socket, and sent the program a signal that comes a moment later
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)


def _read(stream: BinaryIO) -> _Request:
    """Read a request. Raises ValueError for an incomplete one."""
    folder, arguments, environ = (os.fsdecode(stream.read(int(stream.readline()))) for _ in range(3))
    entries = (entry.partition("=") for entry in environ.split("\0"))
    return _Request(folder, arguments.split("\0"), {name: text for name, _, text in entries})


def _is_compared(name: str) -> bool:
    return name.startswith(_OF_SPARK_EOS) or not (name.startswith(_OF_SPARK) or name in _OTHERS)


def _path(environ: Mapping[str, str]) -> list[str]:
    """Return ``PYTHONPATH`` as a list, without the jar that Spark adds to it."""
    named = environ.get("PYTHONPATH")
    entries = named.split(os.pathsep) if named else []
    return list(dict.fromkeys(entry for entry in entries if not entry.endswith(".jar") and Path(entry).exists()))


def _may_fork() -> bool:
    """Return whether a fork lacks no thread for which other code waits."""
    threads = Path("/proc/self/task").iterdir()
    others = (thread for thread in threads if thread.name != str(os.getpid()))
    return all((thread / "comm").read_text().strip() == _ALLOCATOR for thread in others)


def main(folder: str, descriptor: str, *added: str) -> None:
    """Import, run, and clean up. Where that fails, every process starts by itself from then on.

    SIGTERM, which systemd sends to all of a job's processes, is blocked (`start`): the server ends with the job.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the JVM and all that it starts
    listener = socket.socket(fileno=int(descriptor))
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)  # systemd-tmpfiles leaves a folder alone that is locked, however old it is
        os.close(os.pidfd_open(os.getpid()))  # some sandboxes do not allow it
        server = ForkServer(listener, added, lock)
        preload(MODULES)
        server.run()
    except OSError:
        pass
    finally:
        listener.close()
        os.read(0, 1)  # the program is in the folder: Spark may start it as long as the job runs
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
