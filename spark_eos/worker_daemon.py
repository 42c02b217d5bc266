"""Spark's daemon of Python workers, started in less time and without the stack of a worker that Spark has let go.

To be used by ``spark.python.daemon.module=spark_eos.worker_daemon``, where this package is on the workers' path.

- Spark puts ``python/lib/pyspark.zip`` before everything else on that path, and Python compiles what it imports from a
  zip anew in every process: about a second of processor time for each kind of worker. Where the zip belongs to the
  pyspark that is installed, the same modules are imported from there.
- Spark closes the socket of a worker that has been idle for a minute or whose task was given up. The worker then cannot
  say goodbye, and the daemon prints a BrokenPipeError, stack and all, that means nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path


def without_archives(path: Iterable[str]) -> list[str]:
    """The path without pyspark.zip and the archive of py4j beside it, where their modules are installed as files."""
    entries = list(path)
    files = [entry for entry in entries if not entry.endswith(".zip")]
    installed = PathFinder.find_spec("pyspark", files)
    if installed is None or installed.origin is None or PathFinder.find_spec("py4j", files) is None:
        return entries
    archives = (Path(installed.origin).parent / "python" / "lib").resolve()
    return [entry for entry in entries if not (entry.endswith(".zip") and Path(entry).resolve().parent == archives)]


sys.path[:] = without_archives(sys.path)

from pyspark import daemon  # noqa: E402  # from the path as it is now

from spark_eos.worker_exit import quiet  # noqa: E402


def main() -> None:
    vars(daemon)["worker"] = quiet(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
