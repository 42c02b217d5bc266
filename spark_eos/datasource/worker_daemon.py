"""Spark's daemon of Python workers, with a faster start and without stack traces of workers that Spark has closed.

Set ``spark.python.daemon.module=spark_eos.worker_daemon``, where this package is on the workers' path.

- Spark puts ``python/lib/pyspark.zip`` first on that path, and Python compiles modules from a zip again in every
  process: about a second of processor time for each kind of worker. If the zip belongs to the installed pyspark, the
  same modules are imported from there.
- Spark closes the socket of a worker that has been idle for a minute or whose task was cancelled. When the worker then
  writes to it, the daemon prints a meaningless stack trace of a BrokenPipeError.
- The daemon imports the modules of tasks once, for all workers that it forks (`spark_eos.datasource.preload`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path


def without_archives(path: Iterable[str]) -> list[str]:
    """Return the path without pyspark.zip and the archive of py4j, if their modules are installed as files."""
    entries = list(path)
    files = [entry for entry in entries if not entry.endswith(".zip")]
    installed = PathFinder.find_spec("pyspark", files)
    if installed is None or installed.origin is None or PathFinder.find_spec("py4j", files) is None:
        return entries
    archives = (Path(installed.origin).parent / "python" / "lib").resolve()
    return [entry for entry in entries if not (entry.endswith(".zip") and Path(entry).resolve().parent == archives)]


sys.path[:] = without_archives(sys.path)

from pyspark import daemon  # noqa: E402  # from the path as it is now

from spark_eos.datasource.preload import TASK_MODULES, preload, reseed  # noqa: E402
from spark_eos.spark.worker_exit import quiet  # noqa: E402


def preload_tasks() -> None:
    """Import the modules of tasks, on systems where a process with their libraries may be forked."""
    if sys.platform == "linux":
        preload(TASK_MODULES)
        os.register_at_fork(after_in_child=reseed)


def main() -> None:
    quiet(daemon)
    preload_tasks()
    daemon.manager()
