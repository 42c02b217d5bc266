"""Another writer of a Delta table, who also compacts it, while a query is killed."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError


class OtherWriter(ABC):
    """Writes and compacts again and again, ``pause_s`` later each time, until the end of the block; not while there is
    no table."""

    def __init__(self, table: Path, pause_s: float) -> None:
        self.table = str(table)
        self._pause_s, self._end = pause_s, threading.Event()
        self._thread = threading.Thread(target=self._work)

    @abstractmethod
    def write(self) -> None:
        """A version with rows."""

    def _work(self) -> None:
        while not self._end.wait(self._pause_s):
            if not DeltaTable.is_deltatable(self.table):
                continue
            self.write()
            try:
                DeltaTable(self.table).optimize.compact()
            except DeltaError:
                continue  # it has met another writer

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
