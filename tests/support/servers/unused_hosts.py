"""Addresses at which there is no broker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

Address = tuple[str, int]


@contextmanager
def nobody() -> Iterator[str]:
    """An address at which nobody listens: connections are refused. It stays so until the end of the block."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@contextmanager
def a_silent_host() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def dropped() -> Iterator[Address]:
    """An address whose packets go nowhere, as behind a firewall: a port whose queue of connections is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()
