"""Programs of the benchmark's own that run beside it, each a module of this package that takes and prints JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from jobs.runner.session import ROOT


class Child:
    """A program that runs. ``pid``: its process id."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self._name, self._process = name, process
        self.pid = process.pid

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self._process.poll() is not None

    def result(self, timeout_s: float) -> Any:  # noqa: ANN401  # JSON, of whatever shape the program prints
        """The JSON that it prints in one line; it still runs then. Raises ChildProcessError when it prints none."""
        assert self._process.stdout is not None
        alarm = threading.Timer(timeout_s, self._process.kill)
        alarm.start()
        try:
            line = self._process.stdout.readline()
        finally:
            alarm.cancel()
        if not line:
            raise ChildProcessError(f"{self._name} has ended without a result")
        return json.loads(line)


def interpreter_with(requirement: str) -> str:
    """The interpreter of an environment with this requirement alone, made at the first call and kept in ``build/``.

    For programs whose requirements contradict ours. Raises ChildProcessError when pip does not get it.
    """
    folder = ROOT / "build" / "environments" / requirement.replace("==", "-")
    interpreter = folder / "bin" / "python"
    whole = folder / "whole"
    if not whole.exists():
        for step in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement],
        ):
            if subprocess.run(step, stdout=subprocess.DEVNULL).returncode:
                raise ChildProcessError(f"{requirement} could not be installed")
        whole.touch()
    return str(interpreter)


def python_child(module: str, spec: str) -> AbstractContextManager[Child]:
    """``python -m <module> '<spec>'``, as `started`."""
    return started(module, [sys.executable, "-m", module, spec])


@contextmanager
def started(name: str, command: Sequence[str]) -> Iterator[Child]:
    """A program, which may run until its standard input ends. Its errors go to our stderr."""
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Child(name, process)
    finally:
        process.kill()
        process.communicate()
