"""Connections to brokers: new ones, and those of this process that wait for their next use."""

from __future__ import annotations

import os
import select
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from spark_eos import system
from spark_eos.kafka.config.handshake import client_id
from spark_eos.kafka.config.properties import KafkaProperties


class Connects(Protocol):
    """Who opens sockets to the brokers of a cluster; ``connect`` raises OSError."""

    @property
    def properties(self) -> KafkaProperties: ...

    def connect(self, node: int, timeout_s: float | None = None) -> socket.socket: ...


class PooledConnection(Protocol):
    """``idle``: nothing is awaited on it. ``due``: the broker wants to know again who this is."""

    node: int

    @property
    def idle(self) -> bool: ...

    @property
    def due(self) -> bool: ...

    def fileno(self) -> int: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=PooledConnection)
_Key = tuple[KafkaProperties, int, int]


class ConnectionPool(Generic[C]):
    """At most ``each`` to a broker, and ``most`` in all; the least recently used are closed first.

    ``make`` makes one of a socket, the broker's number and the client id.
    """

    def __init__(self, make: Callable[[socket.socket, int, str], C], *, each: int = 1, most: int = 16) -> None:
        self._make = make
        self._each, self._most = each, most
        self._waiting: list[tuple[_Key, C]] = []
        self._lock = threading.Lock()
        with _POOLS_LOCK:
            _POOLS.add(self)

    def connect(self, client: Connects, node: int, timeout_s: float | None = None) -> C:
        """One that was given back, or a new one, within so many seconds. Raises OSError."""
        waiting = self.take(client.properties, node)
        if waiting is not None:
            return waiting
        return self._make(client.connect(node, timeout_s), node, client_id(client.properties))

    def take(self, kafka: KafkaProperties, node: int) -> C | None:
        """The one that was used last and that the broker has not closed since."""
        key = kafka, os.getpid(), node
        while (connection := self._newest(key)) is not None:
            if not connection.due and not _speaks_unasked(connection):
                return connection
            connection.close()
        return None

    def give_back(self, kafka: KafkaProperties, connection: C) -> None:
        """Keep it for the next user; one with an answer outstanding is closed."""
        if not connection.idle:
            connection.close()
            return
        key = kafka, os.getpid(), connection.node
        with self._lock:
            self._waiting.append((key, connection))
            alike = [entry for entry in self._waiting if entry[0] == key]
            too_many = alike[: -self._each] or self._waiting[: -self._most]
            self._waiting = [entry for entry in self._waiting if entry not in too_many]
        for _, surplus in too_many:
            surplus.close()

    def lost(self, kafka: KafkaProperties, connection: C) -> None:
        """Close a broken connection, and with it those to the same broker in every pool: what has cut this one has cut
        them, too, and each would have to be silent for long before that was noticed."""
        connection.close()
        with _POOLS_LOCK:
            pools = list(_POOLS)
        for pool in pools:
            pool.drop(kafka, connection.node)

    def close(self) -> None:
        """Close all that wait for their next use; those in use belong to their users."""
        with self._lock:
            closed, self._waiting = self._waiting, []
        for _, connection in closed:
            connection.close()

    def drop(self, kafka: KafkaProperties, node: int) -> None:
        """Close those to a broker that wait for their next use."""
        while (alike := self._newest((kafka, os.getpid(), node))) is not None:
            alike.close()

    def _newest(self, key: _Key) -> C | None:
        with self._lock:
            for i in reversed(range(len(self._waiting))):
                if self._waiting[i][0] == key:
                    return self._waiting.pop(i)[1]
        return None


_POOLS: weakref.WeakSet[ConnectionPool[Any]] = weakref.WeakSet()
_POOLS_LOCK = threading.Lock()


def _speaks_unasked(connection: PooledConnection) -> bool:
    """Whether there is something to read though nothing is awaited: usually the end of the connection."""
    poll = system.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
