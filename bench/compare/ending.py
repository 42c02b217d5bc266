"""By which error a query of Spark's has ended: its program says it at its end, and who watches the program reads it.

The log of such a program has other names as well: those of warnings, of errors that were tried again, and of what a JVM
says while it ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from spark_eos import reason

_LINE = "ended by "
_TOLD = re.compile(rf"^{_LINE}(.+)$", re.MULTILINE)


@contextmanager
def told() -> Iterator[None]:
    """Print the error that the block raises: its condition, or else the first line of its first cause."""
    try:
        yield
    except Exception as error:
        print(f"\n{_LINE}{_name(error)}", flush=True)  # a JVM may have printed half a line
        raise


def told_by(log: str) -> str | None:
    """What the program has said, if it has."""
    found = _TOLD.findall(log)
    return str(found[-1]) if found else None


def _name(error: BaseException) -> str:
    found = reason(error)
    if found is not None:
        return found.condition
    cause = error
    while (deeper := getattr(cause, "_cause", None)) is not None:
        cause = deeper
    line = str(cause).strip().partition("\n")[0]
    if cause is not error:
        return line  # which begins with the class in Java
    return f"{type(error).__name__}: {line}".removesuffix(": ")
