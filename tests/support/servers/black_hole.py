"""An address whose packets go nowhere, as behind a firewall or on a machine that is gone."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

Address = tuple[str, int]


@contextlib.contextmanager
def dropped() -> Iterator[Address]:
    """Packets go nowhere: a port whose queue of connections is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()
