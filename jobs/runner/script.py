"""How a job's file starts as a program, before the imports that take seconds. Imports the standard library only."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path


def run_as_module(file: str) -> None:
    """Run a job, whose ``file`` spark-submit has started, as a module of the package ``jobs``, to its end.

    Python's path begins with the folder of a file that is started, jobs/, and the file belongs to no package.
    """
    job = Path(file).resolve()
    sys.path[0] = str(job.parents[1])
    runpy.run_module(f"jobs.{job.stem}", run_name="__main__", alter_sys=True)


def leave_on_signals() -> None:
    """Until the job has handlers of its own, a signal ends the process, without a stack trace from an import."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
