"""The user's cache: folders that are expensive to make, made once.

::

    <cache>/kafka-4.3.1-5f0c1e2d/
        kafka_2.13-4.3.1.jar …
        manifest.json            file names, sizes, times, sha256; written last

A folder is used only when it matches its manifest. A new one is made under a temporary name and renamed under a file
lock: the rest of an interrupted process is never taken for a complete folder, and only one of several processes that
need it makes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypedDict

from spark_eos.errors import stop

_MANIFEST = "manifest.json"


class _Entry(TypedDict):
    """A file in the manifest."""

    name: str
    size: int
    mtime_ns: int
    sha256: str


def cache_dir() -> Path:
    """Return `$SPARK_EOS_CACHE`, or else `spark-eos` in `$XDG_CACHE_HOME` or `~/.cache`. Raises DevClusterError
    (EOS_DEVCLUSTER_CONFIG) for a user without a home."""
    own = os.environ.get("SPARK_EOS_CACHE")
    if own:
        return Path(own).absolute()
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spark-eos"
    except RuntimeError:
        raise stop("EOS_DEVCLUSTER_CONFIG.folder", why="the user has no home folder for the cache") from None


def stored(name: str, make: Callable[[Path], None]) -> list[Path]:
    """Return the files of the folder `name` of the cache, sorted by name.

    `make(folder)` fills an empty folder, when the cache does not have it or it is harmed. Raises as `make`.
    """
    folder = cache_dir() / name
    files = _verified(folder)
    if files is not None:
        return files
    with _lock(folder):
        # Another process may have made it while this one waited for the lock.
        files = _verified(folder)
        return files if files is not None else _replace(folder, make)


def digest(*parts: object) -> str:
    """Return a short digest, for names of folders that must not be confused."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:10]


def _verified(folder: Path) -> list[Path] | None:
    """Return the files in the folder, or None when they are not all there as the manifest says.

    A file with the size and time that it was written with is taken as unharmed; any other time costs a digest.
    """
    try:
        entries: list[_Entry] = json.loads((folder / _MANIFEST).read_text())["files"]
        unharmed = all(_matches(folder / entry["name"], entry) for entry in entries)
        return [folder / entry["name"] for entry in entries] if unharmed else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _matches(file: Path, entry: _Entry) -> bool:
    stat = file.stat()
    if stat.st_size != entry["size"]:
        return False
    return stat.st_mtime_ns == entry["mtime_ns"] or _sha256(file) == entry["sha256"]


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Let one process at a time run the block. The lock ends with the process that holds it, also if it is killed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"spark-eos: waiting for another process that prepares {folder.name} …", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _replace(folder: Path, make: Callable[[Path], None]) -> list[Path]:
    """Make the folder anew, and return its files. The caller holds the lock, so unfinished folders have no owner."""
    prefix = f".{folder.name}.partial-"
    for leftover in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent, ignore_cleanup_errors=True) as partial:
        new = Path(partial, "new")
        new.mkdir()
        make(new)
        entries = [_entry(file, new) for file in sorted(new.rglob("*")) if file.is_file()]
        (new / _MANIFEST).write_text(json.dumps({"files": entries}, indent=1))
        if folder.exists():
            folder.rename(Path(partial, "harmed"))
        new.rename(folder)
    return [folder / entry["name"] for entry in entries]


def _entry(file: Path, folder: Path) -> _Entry:
    stat = file.stat()
    name = str(file.relative_to(folder))
    return {"name": name, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": _sha256(file)}
