"""Lets a Python worker end without a stack trace after Spark has closed its socket.

Spark closes the socket of a worker that has been idle for a minute, whose task was cancelled, or whose result it has
read. The worker then cannot send its last message, and Spark's daemon prints the stack of a meaningless
BrokenPipeError.
"""

from __future__ import annotations

import sys
import traceback
from types import ModuleType, SimpleNamespace

_DAEMON = "pyspark.daemon"


def _print_exc() -> None:
    if not isinstance(sys.exception(), ConnectionError):
        traceback.print_exc()


def quiet(daemon: ModuleType) -> None:
    """Let Spark's daemon, and every worker that it forks, end without a stack when the worker's socket is gone.

    The daemon looks up the function that prints stacks when it calls it, so this counts at once, also within a task.
    """
    vars(daemon)["traceback"] = SimpleNamespace(print_exc=_print_exc, format_exc=traceback.format_exc)


def quiet_here() -> None:
    """Make the exit quiet in this process, if it is a worker that Spark's own daemon has started.

    Spark starts the workers that plan a stream by its own daemon, and ignores ``spark.python.daemon.module`` there.
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == _DAEMON:
        quiet(main)
