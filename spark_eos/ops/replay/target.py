"""The new checkpoint of a replay: the files of a query that has done micro-batch 0 and stopped.

They are those that Spark writes itself, in its words: the version and the metadata are copied from the old checkpoint,
which the same Spark has written. Checksums are left out, which Spark does not miss.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from spark_eos import failpoints
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import HadoopSettings, here
from spark_eos.checkpoint.stores import NoStore, Store, open_store
from spark_eos.errors import EosError, ReplayError, stop
from spark_eos.ops.checkpoint.aside import put
from spark_eos.protocol.head import Unfinished

_LOGS = ("offsets", "commits")


def contents(query: str, unfinished: Unfinished) -> dict[str, str]:
    """The files, by name, in the order in which they are written. With the first, the new query is one that no start
    gets past the head of."""
    return {
        "metadata": json.dumps({"id": query}, separators=(",", ":")),
        "offsets/0": "\n".join([*unfinished.metadata, *unfinished.lines]),
        "commits/0": "\n".join(unfinished.done),
    }


class Target:
    """Where the new checkpoint is to be."""

    def __init__(self, location: str, settings: HadoopSettings) -> None:
        self.location = location
        self._checkpoint = Checkpoint(location, settings)
        self._store = _opened(location, here(settings))

    def check_free(self) -> None:
        """Raise ReplayError if there is anything."""
        found = [name for folder in ("", *_LOGS) for name in self._checkpoint.names(folder)]
        if found:
            raise self._used(f"{found[0]} exists there")

    def write(self, files: dict[str, str], still: Callable[[], None] = lambda: None) -> None:
        """Write them, or what an earlier try has left out. ``still`` is called before each, and raises where another
        command has taken over. Raises ReplayError where one is there and is another.

        What Spark has planned after micro-batch 0, at a start that was refused, stays: it goes on from these files.
        """
        for path, text in files.items():
            still()
            there = self._checkpoint.read(path)
            if there is not None and there != text:
                raise self._used(f"{path} exists with other content")
            if there is None:
                try:
                    put(self._store, path, text.encode())
                except ReplayError:
                    still()
                    raise
            failpoints.reach("replay.filed")

    def _used(self, why: str) -> EosError:
        return stop("EOS_REPLAY_REFUSED.target_used", location=self.location, why=why)


def _opened(location: str, settings: HadoopSettings) -> Store:
    try:
        return open_store(location, settings)
    except NoStore as why:
        raise stop("EOS_CHECKPOINT_STORE.unwritable", location=location, why=why) from None
