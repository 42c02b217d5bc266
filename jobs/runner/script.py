"""Start of a job's file as a program, before the imports that take seconds. Imports the standard library only."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path


def begin(file: str, package: str | None) -> None:
    """Let a signal end the process, without a stack trace from an import, until the job has handlers of its own.
    ``package``: the one that the job was started as a module of. Without one, spark-submit has started its ``file``,
    and Python's path begins with the folder jobs/: then the job is run, to its end, as a module of the package.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    if not package:
        job = Path(file).resolve()
        sys.path[0] = str(job.parents[1])
        runpy.run_module(f"jobs.{job.stem}", run_name="__main__", alter_sys=True)
