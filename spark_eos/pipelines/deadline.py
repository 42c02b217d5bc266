"""Calls with a limit of time, for libraries whose own limits are for single reads of a socket, or missing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Overdue(Exception):
    """A call took longer than it may. Its thread still works on it, and uses the call's arguments."""


def within(timeout_s: float, call: Callable[[], T], thread: str) -> T:
    """Return the result of ``call``, which runs in a thread of this name. Raises Overdue after ``timeout_s`` seconds,
    and exceptions of ``call``."""
    results: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            results.put((call(), None))
        except BaseException as error:
            results.put((None, error))

    threading.Thread(target=work, name=thread, daemon=True).start()
    try:
        result, error = results.get(timeout=timeout_s)
    except queue.Empty:
        raise Overdue(f"no answer within {timeout_s:g} s") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # a result, as there is no error
