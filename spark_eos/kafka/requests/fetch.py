"""Fetch requests on a socket of their own, one partition at a time: bytes as the broker sends them, without a copy.

A request is sent when the caller says so and its answer taken later, so that the broker reads and sends while the
caller is busy.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from spark_eos.kafka.codes import LEADER_MOVED
from spark_eos.kafka.config.handshake import silence_seconds
from spark_eos.kafka.config.properties import Isolation, KafkaProperties
from spark_eos.kafka.net import sessions
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.net.pool import ConnectionPool

_FETCH = 1
#: The last one of plain fields; brokers have it since Kafka 2.3.
_VERSION = 11
_NO_SESSION = (0, -1)
#: A size in an answer beyond this is no size: an answer is as large as asked for, or as one record batch.
_LARGEST = 1 << 30

# Of the answer: its size and the request's number; throttle time, error, session, one topic …
_BEGIN = struct.Struct(">iiihiih")
# … of this name, and one partition: number, error, high watermark, last stable offset, log start, aborted transactions
_PARTITION = struct.Struct(">iihqqqi")
_ABORTED = struct.Struct(">qq")
# The replica to prefer, and the size of the records, which are the rest.
_END = struct.Struct(">ii")


@dataclass(frozen=True)
class FetchResponse:
    """``error`` is Kafka's code. The records are the first ``size`` bytes of `FetchConnection.buffer`, until the next
    answer is taken; ``aborted`` are transactions by (producer id, first offset), none for read_uncommitted.

    ``begin``, ``stable`` and ``high_watermark`` are the partition's first offset, last stable offset and high watermark
    at that moment; -1 with an error. ``preferred``: the replica that the leader names as the nearest to the rack that
    asks (KIP-392), without any records; -1 where it is itself to be asked.
    """

    error: int
    size: int
    aborted: tuple[tuple[int, int], ...] = ()
    begin: int = -1
    stable: int = -1
    high_watermark: int = -1
    preferred: int = -1


class FetchConnection:
    """One connection to one broker. Raises OSError from every call once it is of no use; close it then.

    ``idle``: nothing is awaited, so that it can be used for another partition.
    """

    def __init__(self, broker: socket.socket, node: int, client_id: str = "spark-eos") -> None:
        self.node = node
        self.idle = True
        self.buffer = bytearray()
        self._client_id = client_id.encode()
        self._socket = broker
        self._number = 0
        self._partition = -1

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    @property
    def due(self) -> bool:
        """The broker wants to know again who this is: replace it, when nothing is awaited."""
        return sessions.is_due(self._socket)

    def send(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        isolation: Isolation,
        max_bytes: int,
        max_wait_ms: int,
        rack: str = "",
    ) -> None:
        """Ask for records from ``offset`` on: about ``max_bytes``, but a first batch that is larger comes whole."""
        self._number += 1
        self._partition = partition
        self.idle = False
        name = topic.encode()
        head = struct.pack(">hhih", _FETCH, _VERSION, self._number, len(self._client_id)) + self._client_id
        committed = isolation == "read_committed"
        limits = struct.pack(">iiiibii", -1, max_wait_ms, 1, max_bytes, committed, *_NO_SESSION)
        place = struct.pack(">ih", 1, len(name)) + name + struct.pack(">ii", 1, partition)
        wanted = struct.pack(">iqqi", -1, offset, -1, max_bytes)
        own_rack = rack.encode()
        nothing_forgotten = struct.pack(">ih", 0, len(own_rack)) + own_rack
        body = head + limits + place + wanted + nothing_forgotten
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def receive(self, timeout_s: float) -> FetchResponse:
        """The answer to what was sent; each piece of it within the time."""
        self._socket.settimeout(timeout_s)
        size, number, _, error, _, topics, name_size = _BEGIN.unpack(self._take(_BEGIN.size))
        if number != self._number:
            raise OSError("the broker answers another request")
        if error or topics != 1:
            raise OSError(f"the broker refuses to fetch (error {error})")
        self._take(name_size)
        partitions, partition, error, high_watermark, stable, begin, count = _PARTITION.unpack(
            self._take(_PARTITION.size)
        )
        aborted = tuple(_ABORTED.iter_unpack(self._take(max(count, 0) * _ABORTED.size)))
        preferred, records = _END.unpack(self._take(_END.size))
        records = max(records, 0)
        sizes = _BEGIN.size + name_size + _PARTITION.size + len(aborted) * _ABORTED.size + _END.size + records
        if (partitions, partition) != (1, self._partition) or size + 4 != sizes:
            raise OSError("the broker's answer is not one to this request")
        if len(self.buffer) < records:
            self.buffer = bytearray(records)
        self._fill(memoryview(self.buffer)[:records])
        self.idle = True
        return FetchResponse(error, records, aborted, begin, stable, high_watermark, preferred)

    def take_buffer(self) -> bytearray:
        """The buffer with the last answer's records, which is the caller's from now on."""
        taken, self.buffer = self.buffer, bytearray()
        return taken

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= _LARGEST:
            raise OSError("the broker's answer has an impossible size")
        piece = bytearray(size)
        self._fill(memoryview(piece))
        return bytes(piece)

    def _fill(self, place: memoryview) -> None:
        while place:
            count = self._socket.recv_into(place)
            if not count:
                raise OSError("the broker has closed the connection")
            place = place[count:]


connection_pool = ConnectionPool(FetchConnection)
_LARGEST_KEPT = 4 * 1024 * 1024


def connect(kafka: KafkaProperties, topic: str, partition: int, replica: int | None = None) -> FetchConnection:
    """A connection to the partition's leader, or to that replica; one that was given back or a new one. Raises
    OSError."""
    client = broker_client(kafka)
    if replica is not None:
        return connection_pool.connect(client, replica)
    leader = client.leader(topic, partition)
    if leader is None:
        raise OSError(f"{topic}-{partition} has no leader that is known")
    try:
        return connection_pool.connect(client, leader)
    except OSError:
        client.forget_leader(topic, partition)
        raise


def give_back(kafka: KafkaProperties, connection: FetchConnection) -> None:
    """Keep a connection for the next who reads from its broker, without the memory that a large answer took."""
    if len(connection.buffer) > _LARGEST_KEPT:
        connection.buffer = bytearray()
    connection_pool.give_back(kafka, connection)


def is_spoken(kafka: KafkaProperties) -> bool:
    """Whether the brokers speak this version. Raises ConnectionFailed."""
    return broker_client(kafka).speaks(_FETCH, _VERSION)


def fetch_once(
    kafka: KafkaProperties,
    topic: str,
    partition: int,
    offset: int,
    max_bytes: int,
    *,
    isolation: Isolation = "read_committed",
) -> tuple[FetchResponse, bytes] | None:
    """What a partition holds from ``offset`` on, not waiting for more, and the records' bytes; None without an
    answer."""
    try:
        connection = connect(kafka, topic, partition)
        try:
            connection.send(topic, partition, offset, isolation=isolation, max_bytes=max_bytes, max_wait_ms=0)
            answer = connection.receive(silence_seconds(kafka))
            data = bytes(memoryview(connection.buffer)[: answer.size])
        except BaseException:
            connection.close()
            raise
    except OSError:
        broker_client(kafka).forget_leader(topic, partition)
        return None
    give_back(kafka, connection)
    if answer.error in LEADER_MOVED:
        broker_client(kafka).forget_leader(topic, partition)
    return answer, data
