"""The loop of `bench.loop` in Go, by franz-go, whose consumer and producer share a session. Where Go is there."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

from bench.child import Child, started
from bench.loop import LoopSpec
from jobs.runner.session import ROOT

_PROGRAM = Path(__file__).with_name("golang_loop")


def is_there() -> bool:
    """Whether there is a Go to compile it."""
    return shutil.which("go") is not None


def go_child(spec: LoopSpec) -> AbstractContextManager[Child]:
    """The program, compiled before it starts. It prints what a `bench.loop` prints. Raises ChildProcessError."""
    binary = ROOT / "build" / _PROGRAM.name
    if subprocess.run(["go", "build", "-o", str(binary), "."], cwd=_PROGRAM).returncode:
        raise ChildProcessError("the loop in Go was not compiled; '--without' leaves it out")
    numbers = (spec.rows, spec.rows_per_transaction)
    arguments = (spec.bootstrap_servers, spec.input, spec.output, *numbers, spec.codec)
    return started("the loop in Go", [str(binary), *map(str, arguments)])
