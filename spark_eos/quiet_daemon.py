"""Spark's daemon of Python workers, without the stack of a worker that Spark has let go.

Spark closes the socket of a worker that has been idle for a minute or whose task was given up. The worker then cannot
say goodbye, and its daemon prints a BrokenPipeError, stack and all, that means nothing. To be used by
``spark.python.daemon.module=spark_eos.quiet_daemon``.
"""

from __future__ import annotations

import os
import socket

from pyspark import daemon

_worker = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    try:
        return _worker(sock, authenticated)
    except ConnectionError:
        os._exit(1)  # as the daemon does, after the stack


def main() -> None:
    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    main()
