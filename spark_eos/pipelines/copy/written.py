"""How much the last micro-batch of a query has written: from its commit to its source, which reports it.

Both run in Python processes of Spark's driver, which end when Spark likes. Between them is a file in a folder that only
its owner can enter, made by the program that starts the query. It is for people: nothing is decided by it, and where it
cannot be written or read, nothing is reported.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LastWritten:
    """The file with these figures is in ``folder``; without a folder, nothing is noted."""

    folder: str | None = None

    def note(self, batch: int, rows: int, size: int, dropped: int, **more: int) -> None:
        """Note that a micro-batch is committed. ``size``: in bytes; ``dropped``: records that its transform rejected,
        and that are left out; ``more``: further figures of this kind of query."""
        if self.folder is None:
            return
        with contextlib.suppress(OSError):
            new = Path(self.folder, "new")
            figures = {"batch": batch, "rows": rows, "bytes": size, "dropped": dropped, **more}
            new.write_text(json.dumps(figures), encoding="utf-8")
            new.replace(Path(self.folder, "last"))

    def last(self) -> Mapping[str, int] | None:
        """Return ``batch``, ``rows``, ``bytes``, ``dropped`` and any further counts that were noted of the last
        micro-batch."""
        if self.folder is None:
            return None
        with contextlib.suppress(OSError, ValueError):
            noted: dict[str, int] = json.loads(Path(self.folder, "last").read_text(encoding="utf-8"))
            return noted
        return None


def of_one_query() -> LastWritten:
    """Return the notes of one query, in a folder of their own, which is removed when this process ends."""
    try:
        folder = tempfile.mkdtemp(prefix="spark-eos-")
    except OSError:
        return LastWritten()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return LastWritten(folder)
