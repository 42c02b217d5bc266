"""When something was there that a program writes: somebody looks for it all the time."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self

_LOOK_S = 0.005


class Watcher(ABC):
    """Looks from the beginning of its block to the end, and once more then."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(_LOOK_S)
            self._look()

    @abstractmethod
    def _look(self) -> None:
        """Note what is there now."""
