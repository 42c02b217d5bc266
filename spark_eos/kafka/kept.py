"""Connections of this process that wait for their next use, by cluster and broker."""

from __future__ import annotations

import os
from typing import Generic, Protocol, TypeVar

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
    """One to each broker, and at most 16; those that were used longest ago are closed first."""

    def __init__(self) -> None:
        self._by_broker: dict[tuple[KafkaProperties, int, int], C] = {}

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
