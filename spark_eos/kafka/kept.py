"""Connections to brokers: new ones, and those of this process that wait for their next use."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from spark_eos.kafka.config import canonical
from spark_eos.kafka.wire import wire
from spark_eos.options import KafkaProperties

_MOST = 16


class Connection(Protocol):
    """``idle``: nothing is awaited on it."""

    node: int

    @property
    def idle(self) -> bool: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Connection)


class Kept(Generic[C]):
    """One to each broker, and at most 16; those that were used longest ago are closed first.

    ``make`` makes one of a socket, the broker's number and the client id.
    """

    def __init__(self, make: Callable[[socket.socket, int, str], C]) -> None:
        self._make = make
        self._by_broker: dict[tuple[KafkaProperties, int, int], C] = {}

    def connect(self, kafka: KafkaProperties, node: int) -> C:
        """One that was given back, or a new one. Raises OSError."""
        waiting = self.take(kafka, node)
        if waiting is not None:
            return waiting
        broker = wire(kafka).connect(node)
        if broker is None:
            raise OSError(f"broker {node} cannot be reached")
        return self._make(broker, node, canonical(kafka).get("client.id", "spark-eos"))

    def take(self, kafka: KafkaProperties, node: int) -> C | None:
        return self._by_broker.pop((kafka, os.getpid(), node), None)

    def give_back(self, kafka: KafkaProperties, connection: C) -> None:
        """Keep it for the next user; one with an answer outstanding is closed."""
        key = kafka, os.getpid(), connection.node
        if not connection.idle or key in self._by_broker:
            connection.close()
            return
        self._by_broker[key] = connection
        while len(self._by_broker) > _MOST:
            self._by_broker.pop(next(iter(self._by_broker))).close()

    def close(self) -> None:
        while self._by_broker:
            self._by_broker.popitem()[1].close()
