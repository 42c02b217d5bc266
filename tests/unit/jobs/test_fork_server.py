"""Python processes that are forks of a server, and those that must not be."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jobs.runner import fork_server, forked_python
from tests.support.waiting import TIMEOUT, is_gone, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no such server")

ROOT = Path(__file__).parents[3]
LOCAL = {"spark.master": "local[2]"}
#: A module that the program runs: it says what it is, and ends as it is asked to.
PROBE = """
import json, os, sys
had = "pyspark.worker" in sys.modules
import numpy.random
print(json.dumps({
    "pid": os.getpid(), "parent": os.getppid(), "had": had, "random": numpy.random.random(),
    "arguments": sys.argv[1:], "one": os.environ.get("SPARK_ONE"), "folder": os.getcwd(), "path": sys.path,
    "hash": hash("text"), "name": sys.modules["__main__"].__spec__.name, "main": __name__, "file": sys.argv[0],
    "input": sys.stdin.readline(),
}), flush=True)
print("an error", file=sys.stderr)
if error := os.environ.get("SPARK_RAISES"):
    raise {"BrokenPipeError": BrokenPipeError, "ValueError": ValueError}[error]("of the probe")
if os.environ.get("SPARK_WAITS"):
    sys.stdin.read()
sys.exit(int(os.environ.get("SPARK_CODE", 0)))
"""
#: What starts a server and then waits to be killed. Its first argument is `forked_python` as it is to be started.
JOB = """
import sys
from jobs.runner import fork_server, forked_python
forked_python.__file__ = sys.argv[1]
print(fork_server.start({}))
print(*fork_server.pids(), flush=True)
sys.stdin.read()
"""


def patient(folder: Path) -> str:
    """The file of `forked_python` as it would be if users had so much time: where a server is busy for some seconds,
    the process would be one of its own."""
    source = Path(forked_python.__file__).read_text()
    assert source.count("ANSWER_S = 5.0") == 1
    copy = folder / "patient.py"
    copy.write_text(source.replace("ANSWER_S = 5.0", f"ANSWER_S = {TIMEOUT}"))
    return str(copy)


class Job:
    """A process that has started a server, and the program by which Spark would start Python."""

    def __init__(self, modules: Path, custom: str | None = None) -> None:
        (modules / "probe.py").write_text(PROBE)
        if custom is not None:
            (modules / "sitecustomize.py").write_text(custom)  # imported by Python itself when it starts
        self.environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(modules), str(ROOT)])}
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", JOB, patient(modules)]
        self.process = subprocess.Popen(command, cwd=ROOT, env=self.environ, stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdout is not None
        self.program = Path(self.process.stdout.readline().strip())
        self.servers = [int(pid) for pid in self.process.stdout.readline().split()]

    @contextmanager
    def started(self, *, cwd: Path = ROOT, **environ: str) -> Iterator[subprocess.Popen[str]]:
        """The probe, with these variables besides those of the job."""
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [str(self.program), "-m", "probe", "an argument"]
        process = subprocess.Popen(command, cwd=cwd, env={**self.environ, **environ}, text=True, **pipes)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):  # a fork that waits ends, too
                stream.close()

    def probe(self, *, code: int = 0, cwd: Path = ROOT, **environ: str) -> dict[str, Any]:
        """What the probe finds itself to be."""
        with self.started(cwd=cwd, SPARK_CODE=str(code), **environ) as process:
            output, errors = process.communicate("a line\n", timeout=TIMEOUT)
        assert (process.returncode, errors) == (code, "an error\n")
        return {**json.loads(output), "forked": json.loads(output)["pid"] != process.pid}

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    job = Job(tmp_path_factory.mktemp("modules"))
    yield job
    job.end()


def test_without_a_path_of_its_own_the_server_forks_for_spark_too():
    """Spark names zips and a jar. Where there are no such zips, as in a SPARK_HOME of ours, nothing is added."""
    named = os.pathsep.join(["/none/pyspark.zip", "/none/py4j.zip", "/none/spark.jar"])
    assert fork_server._path({}) == fork_server._path({"PYTHONPATH": named}) == []


def test_a_fork_is_what_a_new_process_would_be(job):
    """But for the modules that it has: arguments, variables, folder, paths, streams, exit code, hashes. It is a child
    of the server that is named, so that whoever counts processor time finds it; and no two forks draw the same numbers,
    as users' functions may."""
    forked = job.probe(code=7, SPARK_ONE="1", PYTHONHASHSEED="0")
    alone = job.probe(code=7, SPARK_ONE="1", PYTHONHASHSEED="0", MINE="1")
    assert (forked["forked"], forked["had"]) == (True, True)
    assert (alone["forked"], alone["had"]) == (False, False)
    assert forked["one"] == "1" and forked["arguments"] == ["an argument"] and forked["input"] == "a line\n"
    own = ("pid", "parent", "had", "random", "forked")
    assert {**forked, **dict.fromkeys(own)} == {**alone, **dict.fromkeys(own)}
    another = job.probe(PYTHONHASHSEED="0")
    assert another["one"] is None and another["random"] != forked["random"]
    assert [another["parent"]] == [forked["parent"]] == job.servers


@pytest.mark.parametrize("environ", [{"PYTHONHASHSEED": "1"}, {"SPARK_EOS_LOG": "DEBUG"}], ids=["Spark's", "ours"])
def test_another_environment_is_a_process_of_its_own(job, environ):
    """As what is imported may have looked at it; the test above has a variable of the user's."""
    assert not job.probe(**environ)["forked"]


def test_another_folder_or_path_is_a_process_of_its_own(job, tmp_path):
    """It might import other modules of the same name. What is not there, or a jar, has none."""
    path, jar = job.environ["PYTHONPATH"], tmp_path / "spark.jar"
    jar.touch()
    assert not job.probe(cwd=tmp_path)["forked"]
    assert not job.probe(PYTHONPATH=os.pathsep.join([str(tmp_path), path]))["forked"]
    assert job.probe(PYTHONPATH=os.pathsep.join([str(tmp_path / "none"), str(jar), path, path]))["forked"]


def test_a_fork_ends_by_the_signal_that_spark_sends_to_the_program(job):
    """And the program ends with it, as one that a signal has ended."""
    with job.started(SPARK_WAITS="1") as process:
        process.stdin.write("\n")
        process.stdin.flush()
        pid = json.loads(process.stdout.readline())["pid"]
        assert pid != process.pid
        wait_for(lambda: _has(process.pid, "SigCgt", signal.SIGTERM), "the program's handler")
        process.terminate()
        assert process.wait(TIMEOUT) == 128 + signal.SIGTERM
    wait_for(lambda: is_gone(pid), "the end of the fork")


def _has(pid: int, mask: str, number: int) -> bool:
    """Whether the signal is in this mask of the process."""
    status = Path(f"/proc/{pid}/status").read_text()
    (found,) = (line.split()[1] for line in status.splitlines() if line.startswith(f"{mask}:"))
    return bool(int(found, 16) >> (number - 1) & 1)


def test_a_signal_for_a_fork_that_has_just_ended_does_not_matter(tmp_path):
    """The program waits for its exit code, and prints no stack into the job's messages."""
    with subprocess.Popen(["true"]) as ended, socket.socket(socket.AF_UNIX) as listener:
        ended.wait()
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        listener.settimeout(TIMEOUT)
        command = [sys.executable, patient(tmp_path), str(tmp_path / "socket"), sys.executable, "-m", "probe"]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as program, listener.accept()[0] as asked:
            asked.sendall(forked_python.ACCEPTED)
            while not (streams := socket.recv_fds(asked, 100_000, 3)[1]):
                pass
            for stream in streams:
                os.close(stream)
            asked.sendall(b"%d\n" % ended.pid)
            wait_for(lambda: _has(program.pid, "SigCgt", signal.SIGTERM), "the program's handler")
            program.terminate()
            wait_for(lambda: not _has(program.pid, "ShdPnd", signal.SIGTERM), "the signal")
            asked.sendall(b"7\n")
            assert program.communicate(timeout=TIMEOUT)[1] == b""
            assert program.returncode == 7


def test_a_fork_whose_socket_spark_has_closed_prints_no_stack(job):
    """Spark's signal may come a moment after that. Other errors keep theirs."""
    printed = {}
    for error in ("BrokenPipeError", "ValueError"):
        with job.started(SPARK_RAISES=error) as process:
            printed[error] = process.communicate("\n", timeout=TIMEOUT)[1]
            assert process.returncode == 1
    assert printed["BrokenPipeError"] == "an error\n"
    assert "ValueError: of the probe" in printed["ValueError"] and "Traceback" in printed["ValueError"]


def test_a_server_that_has_failed_leaves_the_program_which_is_python_itself(tmp_path):
    """As long as the job runs, Spark may start it."""
    job = Job(tmp_path, "def refuse(*_):\n    raise OSError\nimport os; os.pidfd_open = refuse\n")
    assert not job.probe()["forked"]
    job.end()
    wait_for(lambda: not job.program.parent.exists(), "the end of its folder")


def test_the_server_ends_with_its_job_and_leaves_nothing(tmp_path):
    """However the job ends; forks go on, as Spark ends them. Without a server the program is Python itself.

    The folder is locked as long as the server runs, so that systemd-tmpfiles, which removes old files of /tmp, leaves
    the program of a long job alone. Forks, which may live longer, do not have the lock."""
    job = Job(tmp_path)
    with job.started(SPARK_WAITS="1") as process:
        process.stdin.write("\n")
        process.stdin.flush()
        fork = json.loads(process.stdout.readline())
        kept = tmp_path / "kept"
        kept.write_text(job.program.read_text())
        kept.chmod(0o700)
        folder = os.open(job.program.parent, os.O_RDONLY)
        assert _is_locked(folder)
        job.end()  # by a signal that nobody can prepare for
        wait_for(lambda: is_gone(fork["parent"]), "the end of the server")
        wait_for(lambda: not job.program.parent.exists(), "the end of its folder")
        # A moment later than the server's: the threads of a process may still end when it is a zombie.
        wait_for(lambda: not _is_locked(folder), "the end of the lock")
        os.close(folder)
        assert not is_gone(fork["pid"])
    wait_for(lambda: is_gone(fork["pid"]), "the end of the fork")
    job.program = kept
    assert not job.probe()["forked"]


def test_a_stop_of_all_of_a_jobs_processes_leaves_no_folder(tmp_path):
    """As systemd stops a unit. The server still forks until the job has ended, whenever the signal comes."""
    job = Job(tmp_path)
    for _ in range(2):
        for server in job.servers:
            os.kill(server, signal.SIGTERM)
        assert job.probe()["forked"]
    job.end()
    wait_for(lambda: not job.program.parent.exists(), "the end of its folder")


def _is_locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def test_where_there_can_be_no_server_no_folder_is_left(tmp_path, temporary_files_in):
    """Such as in a temporary folder whose name is too long for a socket."""
    long = tmp_path / ("x" * 90)
    long.mkdir()
    temporary_files_in(long)
    assert fork_server.start(LOCAL) is None
    assert list(long.iterdir()) == []
    temporary_files_in(tmp_path / "none")
    assert fork_server.start(LOCAL) is None


@pytest.mark.parametrize(
    ("variables", "settings", "served"),
    [
        ({}, LOCAL, True),
        ({"PYSPARK_PYTHON": "/usr/bin/another-python"}, LOCAL, False),
        ({"PYSPARK_DRIVER_PYTHON": sys.executable}, LOCAL, False),
        ({}, {**LOCAL, "spark.pyspark.python": sys.executable}, False),
        ({}, {"spark.master": "yarn"}, False),
        ({}, {}, False),
    ],
)
def test_the_program_is_named_while_the_session_starts(environ, monkeypatch, variables, settings, served):
    """And not for what starts later in the job's process; nor for another Python or another machine, where the session
    starts as it would without all this."""
    environ(**{"PYSPARK_PYTHON": sys.executable} | variables)
    monkeypatch.setattr(fork_server, "start", lambda settings: "/a/program")
    before = os.environ["PYSPARK_PYTHON"]
    with fork_server.used(settings):
        assert os.environ["PYSPARK_PYTHON"] == ("/a/program" if served else before)
    assert os.environ["PYSPARK_PYTHON"] == before


def test_forks_import_nothing_of_ours_or_of_arrow_again():
    """What Spark's processes import by name is there, but for the small modules that they run."""
    code = (
        "import importlib, sys; from spark_eos.datasource.preload import MODULES;"
        "list(map(importlib.import_module, MODULES));"
        "had = set(sys.modules);"
        "import spark_eos.worker_daemon, pyspark.sql.streaming.python_streaming_source_runner;"
        "from spark_eos.sink import preflight, session; from spark_eos.source import diagnosis;"
        "print(set(sys.modules) - had - {'pyspark.daemon', 'spark_eos.worker_daemon',"
        "'spark_eos.datasource.worker_daemon', 'pyspark.sql.streaming.python_streaming_source_runner'})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.stdout == "set()\n", done.stderr
