"""Produce requests on a socket of their own: batches as they were sealed, many partitions to a request.

Version 12 of the request: a broker that gets it adds the partition to the transaction by itself (KIP-890). A broker
works on the requests of one connection one after the other, and answers in that order. Nothing here waits: what the
socket does not take now is sent later, and answers are taken when they are there.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_eos.kafka.kept import Kept
from spark_eos.kafka.wire import PRODUCE_VERSION

Place = tuple[str, int]
"""Topic and partition."""

_PRODUCE = 0
_ALL_REPLICAS = -1
_NO_TAGS = b"\x00"
#: An answer has some dozens of bytes to a partition; one that says it has more than this is none.
_LARGEST = 1 << 26
_PIECES = 64
_RECEIVED = 1 << 16
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True)
class Answer:
    """``errors``: Kafka's code for every partition of the request with this number."""

    number: int
    errors: Mapping[Place, int]


class ProduceConnection:
    """One connection to one broker. Raises OSError from every call once it is of no use; close it then.

    ``moved_at``: when bytes last went either way, by the monotonic clock.
    """

    def __init__(self, broker: socket.socket, node: int, client_id: str = "spark-eos") -> None:
        self.node = node
        self.moved_at = time.monotonic()
        self._client_id = client_id.encode()
        self._socket = broker
        self._gathers = not isinstance(broker, ssl.SSLSocket)
        self._number = 0
        self._asked: deque[tuple[int, frozenset[Place]]] = deque()
        self._unsent: deque[memoryview] = deque()
        self._received = bytearray()
        broker.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    @property
    def idle(self) -> bool:
        """Nothing is awaited, so that it can be used for another transaction."""
        return not self._asked

    @property
    def sending(self) -> bool:
        """Something is left to be sent."""
        return bool(self._unsent)

    def send(self, transactional_id: str, batches: Mapping[Place, bytes], timeout_ms: int) -> int:
        """Ask to write one batch to each of these partitions; the request's number. All replicas are to have it within
        ``timeout_ms``."""
        if self.idle:
            self.moved_at = time.monotonic()
        self._number += 1
        head = struct.pack(">hhih", _PRODUCE, PRODUCE_VERSION, self._number, len(self._client_id)) + self._client_id
        pieces = [head + _NO_TAGS + _text(transactional_id) + struct.pack(">hi", _ALL_REPLICAS, timeout_ms)]
        topics: dict[str, list[tuple[int, bytes]]] = {}
        for (topic, partition), data in batches.items():
            topics.setdefault(topic, []).append((partition, data))
        pieces.append(_varint(len(topics) + 1))
        for topic, partitions in topics.items():
            pieces.append(_text(topic) + _varint(len(partitions) + 1))
            for partition, data in partitions:
                pieces += struct.pack(">i", partition) + _varint(len(data) + 1), data, _NO_TAGS
            pieces.append(_NO_TAGS)
        pieces.append(_NO_TAGS)
        pieces.insert(0, struct.pack(">i", sum(map(len, pieces))))
        self._unsent += map(memoryview, _joined(pieces))
        self._asked.append((self._number, frozenset(batches)))
        self.push()
        return self._number

    def push(self) -> None:
        """Send as much as the socket takes now."""
        while self._unsent:
            try:
                if self._gathers:
                    sent = self._socket.sendmsg([self._unsent[i] for i in range(min(_PIECES, len(self._unsent)))])
                else:
                    sent = self._socket.send(self._unsent[0])
            except _LATER:
                return
            self.moved_at = time.monotonic()
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.popleft())
            if sent:
                self._unsent[0] = self._unsent[0][sent:]

    def answers(self) -> list[Answer]:
        """The answers that are there, in the order of the requests."""
        while True:
            try:
                data = self._socket.recv(_RECEIVED)
            except _LATER:
                return self._parse()
            if not data:
                # What came before the end still counts; the next call says that this is the end.
                complete = self._parse()
                if complete:
                    return complete
                raise OSError("the broker has closed the connection")
            self.moved_at = time.monotonic()
            self._received += data

    def _parse(self) -> list[Answer]:
        answers, at = [], 0
        while len(self._received) - at >= 4:
            (size,) = struct.unpack_from(">i", self._received, at)
            if not 0 <= size <= _LARGEST:
                raise OSError("the broker's answer has an impossible size")
            if len(self._received) - at - 4 < size:
                break
            answers.append(self._read(bytes(self._received[at + 4 : at + 4 + size])))
            at += 4 + size
        del self._received[:at]
        return answers

    def _read(self, data: bytes) -> Answer:
        if not self._asked:
            raise OSError("the broker answers, though nothing was asked")
        number, places = self._asked.popleft()
        try:
            answered, errors = _read_answer(data)
        except (struct.error, IndexError, UnicodeDecodeError):
            raise OSError("the broker's answer makes no sense") from None
        if answered != number:
            raise OSError("the broker answers another request")
        if errors.keys() != places:
            raise OSError("the broker's answer is not about the partitions that were asked for")
        return Answer(number, errors)


def _joined(pieces: Iterable[bytes]) -> list[bytes]:
    """Small pieces joined; large ones stay as they are."""
    result: list[bytes] = []
    small: list[bytes] = []
    for piece in pieces:
        if len(piece) < 4096:
            small.append(piece)
        else:
            result += b"".join(small), piece
            small = []
    return [*result, b"".join(small)]


def _varint(number: int) -> bytes:
    """Unsigned, as for sizes in requests."""
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _text(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data) + 1) + data


class _Reader:
    """The fields of an answer, one after the other. Raises IndexError or struct.error behind its end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def fields(self, form: struct.Struct) -> Sequence[int]:
        found = form.unpack_from(self._data, self._at)
        self._at += form.size
        return found

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def count(self) -> int:
        """Of an array or of bytes; 0 also for null."""
        return max(0, self.varint() - 1)

    def text(self) -> str:
        return self.skip(self.count()).decode()

    def skip(self, size: int) -> bytes:
        self._at += size
        if self._at > len(self._data):
            raise IndexError(self._at)
        return self._data[self._at - size : self._at]

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())


_NUMBER = struct.Struct(">i")
# Partition, error, first offset, time of the append, start of the log
_PARTITION = struct.Struct(">ihqqq")


def _read_answer(data: bytes) -> tuple[int, dict[Place, int]]:
    """Number of the request, and errors by partition. The rest, such as which records were at fault, is passed over."""
    read = _Reader(data)
    (number,) = read.fields(_NUMBER)
    read.skip_tags()
    errors: dict[Place, int] = {}
    for _ in range(read.count()):
        topic = read.text()
        for _ in range(read.count()):
            partition, error, _, _, _ = read.fields(_PARTITION)
            for _ in range(read.count()):
                read.fields(_NUMBER)
                read.text()
                read.skip_tags()
            read.text()
            read.skip_tags()
            errors[topic, partition] = error
        read.skip_tags()
    return number, errors


kept = Kept(ProduceConnection)
