"""Programs of the benchmark's own that run beside it, each a module of this package that takes and prints JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jobs.session import ROOT


class Child:
    """A program that runs. ``pid``: its process id."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def result(self, seconds: float) -> Any:
        """The JSON that it prints in one line; it still runs then. Raises ChildProcessError when it prints none."""
        assert self._process.stdout is not None
        alarm = threading.Timer(seconds, self._process.kill)
        alarm.start()
        try:
            line = self._process.stdout.readline()
        finally:
            alarm.cancel()
        if not line:
            raise ChildProcessError(f"{self._process.args[2]} has ended without a result")
        return json.loads(line)


@contextmanager
def child(module: str, spec: str) -> Iterator[Child]:
    """``python -m <module> '<spec>'``, which may run until its standard input ends. Its errors go to our stderr."""
    command = [sys.executable, "-m", module, spec]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Child(process)
    finally:
        process.kill()
        process.communicate()
