"""Recorders around a query that runs: py-spy for its Python processes, Java Flight Recorder for the JVM, and the
processor time of every kind of thread. Linux; py-spy must be allowed to look into processes (root, or ptrace_scope 0).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.flames import Stack, from_jfr, from_py_spy
from bench.meter import CLIENT, family, process_table, stat
from spark_eos.tools.devcluster.java import find_java

_RATE = 100
_WRITING_S = 60
_EVENTS = "jdk.ExecutionSample"


@dataclass
class Recording:
    """Samples of Python and of the JVM; milliseconds of processor time by (group, kind of thread)."""

    python: Counter[Stack] = field(default_factory=Counter)
    jvm: Counter[Stack] = field(default_factory=Counter)
    threads: Counter[tuple[str, str]] = field(default_factory=Counter)


def missing() -> str | None:
    """What there is to install first, if anything."""
    if shutil.which("py-spy", path=_PATH) is None:
        return "py-spy is missing: pip install -e '.[bench]'"
    if not _java_tool("jcmd").exists() or not _java_tool("jfr").exists():
        return "jcmd and jfr are missing: they come with a JDK, not with a runtime alone"
    return None


@contextmanager
def recording(roots: Mapping[str, Sequence[int]]) -> Iterator[Recording]:
    """Filled when the block has ended. The query's Python processes must be there at its begin."""
    made = Recording()
    jvm, *servers = roots[CLIENT]
    with tempfile.TemporaryDirectory(prefix="spark-eos-profile-") as folder:
        own = [p.pid for p in process_table().values() if p.parent == jvm and p.name.startswith("python")]
        parents = [*servers, *own]
        files = [Path(folder, f"{pid}.raw") for pid in parents]
        spies = [_spy(pid, file) for pid, file in zip(parents, files, strict=True)]
        flight = Path(folder, "flight.jfr")
        _jcmd(jvm, "JFR.start", "name=profile", "settings=profile")
        before = thread_times(roots)
        try:
            yield made
        finally:
            made.threads = thread_times(roots) - before
            _jcmd(jvm, "JFR.stop", "name=profile", f"filename={flight}")
            for spy in spies:
                spy.send_signal(signal.SIGINT)
            for spy in spies:
                spy.wait(_WRITING_S)
        made.python = from_py_spy(file.read_text() for file in files if file.exists())
        made.jvm = from_jfr(_run(_java_tool("jfr"), "print", "--stack-depth", "64", "--events", _EVENTS, str(flight)))


_PATH = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])


def _spy(pid: int, file: Path) -> subprocess.Popen[bytes]:
    spy = shutil.which("py-spy", path=_PATH)
    assert spy is not None
    command = [spy, "record", "--pid", str(pid), "--subprocesses", "--native", "--full-filenames", "--format", "raw"]
    command += ["--rate", str(_RATE), "--duration", "unlimited", "--output", str(file)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _java_tool(name: str) -> Path:
    return Path(os.path.realpath(find_java().path)).with_name(name)


def _jcmd(pid: int, *command: str) -> None:
    _run(_java_tool("jcmd"), str(pid), *command)


def _run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def thread_times(roots: Mapping[str, Sequence[int]]) -> Counter[tuple[str, str]]:
    """Milliseconds, user and system, by group and kind: ``python``, or a Java thread's name without its numbers."""
    tick = os.sysconf("SC_CLK_TCK")
    times: Counter[tuple[str, str]] = Counter()
    table = process_table()
    for group, pids in roots.items():
        for process in family(table, pids):
            for file in Path(f"/proc/{process.pid}/task").glob("*/stat"):
                with contextlib.suppress(OSError):
                    name, fields = stat(file)
                    kind = "python" if process.name.startswith("python") else _kind(name)
                    times[group, kind] += sum(map(int, fields[11:13])) * 1000 // tick
    return times


def _kind(thread: str) -> str:
    if thread.startswith("Executor task"):  # "launch" or "idle", as it happens
        return "Executor task"
    return re.sub(r"[^A-Za-z]+", " ", thread).strip()
