"""Another writer of a table, who also tidies it, while a query is killed."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self

from tests.support.tables.table_kinds import TableKind


class OtherWriter(ABC):
    """Writes and tidies again and again, ``pause_s`` later each time, until the end of the block; not while there is no
    table."""

    def __init__(self, table: TableKind, pause_s: float) -> None:
        self.table = table
        self._pause_s, self._end = pause_s, threading.Event()
        self._thread = threading.Thread(target=self._work)

    @abstractmethod
    def write(self) -> None:
        """A version with rows."""

    def _work(self) -> None:
        while not self._end.wait(self._pause_s):
            if not self.table.is_there():
                continue
            self.write()
            self.table.tidy()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
