"""Connections of one client that wait for their next use."""

from __future__ import annotations

import os
import select
import threading
from typing import Any, TypeVar, cast

from spark_eos.base import system
from spark_eos.kafka.net.connection import Connection

C = TypeVar("C", bound=Connection[Any])
#: Class of the connection, and process: sockets are of no use to a forked child.
_Kind = tuple[type[Connection[Any]], int]


class ConnectionPool:
    """Idle connections to the brokers of one cluster. Where there are too many of a class, the least recently used ones
    are closed."""

    def __init__(self) -> None:
        self._waiting: dict[_Kind, list[Connection[Any]]] = {}
        self._lock = threading.Lock()

    def take(self, kind: type[C], node: int) -> C | None:
        """Return the connection of this class that was used last, and that the broker has not closed since."""
        while (connection := self._newest((kind, os.getpid()), node)) is not None:
            if not connection.due and not _speaks_unasked(connection):
                return cast(C, connection)
            connection.close()
        return None

    def give_back(self, connection: Connection[Any]) -> None:
        """Keep it for its next use; one with a response outstanding is closed."""
        if not connection.idle:
            connection.close()
            return
        kind = type(connection)
        with self._lock:
            waiting = self._waiting.setdefault((kind, os.getpid()), [])
            waiting.append(connection)
            alike = [other for other in waiting if other.node == connection.node]
            too_many = alike[: -kind.kept_each] or waiting[: -kind.kept_in_all]
            waiting[:] = [other for other in waiting if other not in too_many]
        for surplus in too_many:
            surplus.close()

    def lost(self, connection: Connection[Any]) -> None:
        """Close a broken connection and all idle ones to the same broker: they are probably cut, too, which would show
        only after a long silence of each."""
        connection.close()
        for kind in list(self._waiting):
            while kind[1] == os.getpid() and (other := self._newest(kind, connection.node)) is not None:
                other.close()

    def close(self) -> None:
        """Close all idle connections; the others belong to their users."""
        with self._lock:
            closed, self._waiting = self._waiting, {}
        for connections in closed.values():
            for connection in connections:
                connection.close()

    def _newest(self, kind: _Kind, node: int) -> Connection[Any] | None:
        with self._lock:
            waiting = self._waiting.get(kind, [])
            for i in reversed(range(len(waiting))):
                if waiting[i].node == node:
                    return waiting.pop(i)
        return None


def _speaks_unasked(connection: Connection[Any]) -> bool:
    """Return whether there is something to read though nothing is awaited: usually the end of the connection."""
    poll = system.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
