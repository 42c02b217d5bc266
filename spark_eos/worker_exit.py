"""The end of a Python worker that Spark has let go, without a stack.

Spark closes the socket of a worker that has been idle for a minute or whose task was given up. The worker then cannot
say goodbye, and Spark's daemon prints a BrokenPipeError, stack and all, that means nothing.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable

Worker = Callable[[socket.socket, bool], int]

_DAEMON = "pyspark.daemon"


def quiet(worker: Worker) -> Worker:
    """Spark's function that serves one task after the other, which ends the process where its socket is gone."""

    def serve(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except ConnectionError:
            os._exit(1)  # as the daemon does, after the stack

    return serve


def quiet_here() -> None:
    """The same in this process, if it is a worker that Spark's own daemon has started.

    That is how Spark starts those that plan a stream, whatever ``spark.python.daemon.module`` says. The function is
    looked up anew for each task, so this counts from the next one on.
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == _DAEMON and vars(main)["worker"].__module__ != __name__:
        vars(main)["worker"] = quiet(vars(main)["worker"])
