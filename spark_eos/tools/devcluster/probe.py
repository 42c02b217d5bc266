"""One Metadata request to one broker, over a socket.

A Kafka client picks a broker and retries by itself; this finds out whether a particular broker answers.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_METADATA_KEY = 3
#: The first version with the cluster id.
_METADATA_VERSION = 2
NO_LEADER = -1
#: A broker that works answers at once; one on a busy machine may take seconds.
ANSWER_S = 10.0


@dataclass(frozen=True)
class Metadata:
    """`brokers`: the ids of the live brokers. `leaders`: the leader of each partition of the requested topic, -1 for
    none.
    """

    cluster_id: str | None
    brokers: frozenset[int]
    leaders: dict[int, int]


def ask(port: int, topic: str | None = None, timeout_s: float = ANSWER_S) -> Metadata | None:
    """The response of the broker on this loopback port, or None if it does not answer (yet)."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            connection.sendall(_request(topic))
            return _parse(_Reader(_receive(connection)))
    except (OSError, OverflowError, struct.error, UnicodeDecodeError):
        return None


def _request(topic: str | None) -> bytes:
    client = b"spark-eos-devcluster"
    header = struct.pack(">hhih", _METADATA_KEY, _METADATA_VERSION, 1, len(client)) + client
    topics = struct.pack(">i", 0) if topic is None else struct.pack(">ih", 1, len(topic)) + topic.encode()
    return struct.pack(">i", len(header + topics)) + header + topics


def _receive(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        (size,) = struct.unpack(">i", stream.read(4))
        return stream.read(size)


def _parse(body: _Reader) -> Metadata:
    body.int32()  # correlation id
    brokers = [_broker(body) for _ in range(body.int32())]
    cluster_id = body.string()
    body.int32()  # controller id
    leaders: dict[int, int] = {}
    for _ in range(body.int32()):
        leaders.update(_topic(body))
    return Metadata(cluster_id, frozenset(brokers), leaders)


def _broker(body: _Reader) -> int:
    node_id = body.int32()
    body.string()  # host
    body.int32()  # port
    body.string()  # rack
    return node_id


def _topic(body: _Reader) -> dict[int, int]:
    body.int16()  # error
    body.string()  # name
    body.int8()  # internal?
    return dict(_partition(body) for _ in range(body.int32()))


def _partition(body: _Reader) -> tuple[int, int]:
    error = body.int16()
    partition, leader = body.int32(), body.int32()
    for _replicas_then_in_sync in range(2):
        for _ in range(body.int32()):
            body.int32()
    return partition, NO_LEADER if error else leader


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, layout: str) -> int:
        value: int = struct.unpack_from(layout, self._data, self._at)[0]
        self._at += struct.calcsize(layout)
        return value

    def int8(self) -> int:
        return self._take(">b")

    def int16(self) -> int:
        return self._take(">h")

    def int32(self) -> int:
        return self._take(">i")

    def string(self) -> str | None:
        size = self.int16()
        if size < 0:
            return None
        self._at += size
        return self._data[self._at - size : self._at].decode()
