"""Spark's home for a session on one machine: PySpark's own folder, without the archive of PySpark's modules.

Spark puts ``$SPARK_HOME/python/lib/pyspark.zip`` first on the path of its Python processes, and Python compiles modules
from an archive anew in each of them: 0.8 s of processor time for each of the seven processes of a query's first
micro-batch. Where there is no archive they import the same modules from the installed package.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOME = "SPARK_HOME"
#: Entries of Spark's home that the JVM needs.
_ENTRIES = ("bin", "conf", "jars", "sbin")


@contextmanager
def without_archives(master: str) -> Iterator[None]:
    """Name such a home in the environment of the JVM that starts within the block.

    Nothing changes where the user has set SPARK_HOME, where ``master`` is not on this machine (YARN sends the archive
    to its executors), or where the folder cannot be made.
    """
    home = None if HOME in os.environ or not master.startswith("local") else _made()
    if home is None:
        yield
        return
    os.environ[HOME] = str(home)
    try:
        yield
    finally:
        del os.environ[HOME]


def linked(installed: Path, cache: Path) -> Path:
    """Return the home in the folder ``cache``: links to the programs, jars and settings in PySpark's folder
    ``installed``.

    It is made once for each installation, and is the same path each time. Raises OSError.
    """
    home = cache / f"spark-home-{hashlib.sha256(str(installed).encode()).hexdigest()[:10]}"
    home.mkdir(parents=True, exist_ok=True)
    for name in _ENTRIES:
        if (installed / name).exists():
            with contextlib.suppress(FileExistsError):  # made before, or by a process that starts at the same time
                (home / name).symlink_to(installed / name)
    return home


def installed() -> Path:
    """Return PySpark's folder."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _made() -> Path | None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spark-eos"
    try:
        return linked(installed(), cache)
    except (OSError, RuntimeError):  # no folder of the user's own can be written; RuntimeError: there is none
        return None
