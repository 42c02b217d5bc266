"""Fetch requests for one partition on a socket of its own: bytes as the broker sends them, received without a copy.

A request is sent when the caller says so and its answer taken later, so that the broker reads and sends while the
caller is busy. Version 11 of the Fetch request is spoken: it is the last one of plain fields, and all brokers that can
fence by EndTxn version 5 speak it.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from spark_eos.kafka.metadata import Isolation

_FETCH, _VERSION = 1, 11
_CLIENT = b"spark-eos"
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
class Answer:
    """``error`` is Kafka's code. The records are the first ``size`` bytes of `Fetching.buffer`, until the next answer
    is taken; ``aborted`` are transactions by (producer id, first offset), none for read_uncommitted."""

    error: int
    size: int
    aborted: tuple[tuple[int, int], ...] = ()


class Fetching:
    """One partition at its leader. Raises OSError from every call once the connection is of no use; close it then."""

    def __init__(self, leader: socket.socket, topic: str, partition: int, isolation: Isolation) -> None:
        self.buffer = bytearray()
        self._socket = leader
        self._number = 0
        name = topic.encode()
        self._place = struct.pack(">ih", 1, len(name)) + name + struct.pack(">ii", 1, partition)
        self._isolation = int(isolation == "read_committed")
        self._partition = partition

    def close(self) -> None:
        self._socket.close()

    def send(self, offset: int, max_bytes: int, max_wait_ms: int) -> None:
        """Ask for records from ``offset`` on: about ``max_bytes``, but a first batch that is larger comes whole."""
        self._number += 1
        head = struct.pack(">hhih", _FETCH, _VERSION, self._number, len(_CLIENT)) + _CLIENT
        limits = struct.pack(">iiiibii", -1, max_wait_ms, 1, max_bytes, self._isolation, *_NO_SESSION)
        wanted = struct.pack(">iqqi", -1, offset, -1, max_bytes)
        nothing_forgotten_no_rack = struct.pack(">ih", 0, 0)
        body = head + limits + self._place + wanted + nothing_forgotten_no_rack
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def receive(self, timeout_s: float) -> Answer:
        """The answer to what was sent; each piece of it within the time."""
        self._socket.settimeout(timeout_s)
        size, number, _, error, _, topics, name_size = _BEGIN.unpack(self._take(_BEGIN.size))
        if number != self._number:
            raise OSError("the broker answers another request")
        if error or topics != 1:
            raise OSError(f"the broker refuses to fetch (error {error})")
        self._take(name_size)
        partitions, partition, error, _, _, _, count = _PARTITION.unpack(self._take(_PARTITION.size))
        aborted = tuple(_ABORTED.iter_unpack(self._take(max(count, 0) * _ABORTED.size)))
        _, records = _END.unpack(self._take(_END.size))
        records = max(records, 0)
        sizes = _BEGIN.size + name_size + _PARTITION.size + len(aborted) * _ABORTED.size + _END.size + records
        if (partitions, partition) != (1, self._partition) or size + 4 != sizes:
            raise OSError("the broker's answer is not one to this request")
        if len(self.buffer) < records:
            self.buffer = bytearray(records)
        self._fill(memoryview(self.buffer)[:records])
        return Answer(error, records, aborted)

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
