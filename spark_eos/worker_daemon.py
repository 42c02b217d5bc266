"""Spark's daemon of Python workers, with a faster start and without stack traces of workers that Spark has closed.

Use it by ``spark.python.daemon.module=spark_eos.worker_daemon``, if this package is on the workers' path.

- Spark puts ``python/lib/pyspark.zip`` first on that path, and Python compiles modules from a zip again in every
  process: about a second of processor time for each kind of worker. If the zip belongs to the installed pyspark, the
  same modules are imported from there.
- Spark closes the socket of a worker that has been idle for a minute or whose task was cancelled. When the worker then
  writes to it, the daemon prints a meaningless stack trace of a BrokenPipeError.
- A worker imports what reads and writes Kafka, and pyarrow, numpy and pandas for it, for more than half a second of
  processor time. The daemon does that once, and those that it forks have it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path


def without_archives(path: Iterable[str]) -> list[str]:
    """The path without pyspark.zip and the archive of py4j, if their modules are installed as files."""
    entries = list(path)
    files = [entry for entry in entries if not entry.endswith(".zip")]
    installed = PathFinder.find_spec("pyspark", files)
    if installed is None or installed.origin is None or PathFinder.find_spec("py4j", files) is None:
        return entries
    archives = (Path(installed.origin).parent / "python" / "lib").resolve()
    return [entry for entry in entries if not (entry.endswith(".zip") and Path(entry).resolve().parent == archives)]


sys.path[:] = without_archives(sys.path)

from pyspark import daemon  # noqa: E402  # from the path as it is now

from spark_eos.spark.worker_exit import quiet  # noqa: E402

#: pyarrow imports pandas, where it is installed, as soon as it makes an array of Python's objects.
_OF_TASKS = (
    "pandas",
    "spark_eos.source.reader",
    "spark_eos.source.fetch",
    "spark_eos.source.consumer",
    "spark_eos.sink.task",
    "spark_eos.copy.task",
)


def preload() -> None:
    """Import what tasks import, where a process may be forked with their libraries in it."""
    if sys.platform != "linux":
        return
    for name in _OF_TASKS:
        with contextlib.suppress(Exception):  # the worker that needs it says what is wrong
            importlib.import_module(name)
    gc.freeze()  # what lies still in the daemon's memory is not copied for a worker
    os.register_at_fork(after_in_child=_reseed)


def _reseed() -> None:
    """Else all workers would draw the same numbers, in users' functions. Python's own module does this by itself."""
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()


def main() -> None:
    quiet(daemon)
    preload()
    daemon.manager()


if __name__ == "__main__":
    main()
