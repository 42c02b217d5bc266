"""A connection to one broker, on which requests are sent without waiting for earlier responses.

A broker processes the requests of a connection one after the other, and answers in that order. Bytes that the socket
does not take now are sent later, and responses are taken as they arrive. Only `wait`, for many connections, and
`Connection.answer`, for one, block.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, TypeVar

from spark_eos.base import system
from spark_eos.kafka.net import sessions
from spark_eos.kafka.net.sasl import CertificateRefused
from spark_eos.kafka.net.schema import NO_TAGS, FieldReader

_PIECES = 64
_TLS_PIECE = 1 << 16

#: Offset of a response in the buffer. With 0, its alignment differs by a few bytes from that in the kernel's pages, and
#: some processors then copy at a third of their speed: 1 MB takes 0.5 ms instead of 0.2.
_FRONT = 64
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

A = TypeVar("A")
T = TypeVar("T")


class _Closed(ConnectionError):
    pass


class Connection(Generic[A]):
    """A connection to one broker. Once it is broken, every call raises OSError; then close it.

    Each request has a note, which is returned with its response. ``moved_at``: when bytes were last sent or received,
    by the monotonic clock. ``buffer``: memory for a response of more than ``ahead`` bytes, which the next one reuses
    unless the caller takes it.
    """

    #: How many idle connections of this class a `ConnectionPool` keeps, to one broker and to all of them.
    kept_each: ClassVar[int] = 2
    kept_in_all: ClassVar[int] = 16
    #: Largest size of a response; sound ones have some dozens of bytes for each partition.
    largest = 1 << 26
    #: Bytes to read from the socket at once, before the size of the next response is known.
    ahead = 1 << 16

    def __init__(self, broker: socket.socket, node: int, client_id: str = "spark-eos") -> None:
        self.node = node
        self.moved_at = system.monotonic()
        self._client_id = client_id.encode()
        self._socket = broker
        self._gathers = not isinstance(broker, ssl.SSLSocket)
        self._number = 0
        self._answered = False
        self._asked: deque[tuple[int, bool, A]] = deque()
        self._unsent: deque[memoryview] = deque()
        self._received = bytearray()
        self.buffer = bytearray()
        self._size = self._filled = 0  # of the response that is on its way into the buffer
        broker.setblocking(False)

    def fileno(self) -> int:
        """Return the socket's file descriptor, for poll."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    @property
    def idle(self) -> bool:
        """Return whether no response is awaited."""
        return not self._asked

    @property
    def due(self) -> bool:
        """Return whether its session ends soon (see `sessions`): replace the connection when it is idle."""
        return sessions.is_due(self._socket)

    @property
    def sending(self) -> bool:
        """Return whether some bytes are still to be sent."""
        return bool(self._unsent)

    def ask(self, api: int, version: int, body: Iterable[bytes | memoryview], note: A, *, flexible: bool = True) -> int:
        """Queue a request, which `push` sends. Returns its number. ``flexible``: whether its header has tagged
        fields."""
        if self.idle:
            self.moved_at = system.monotonic()
        self._number += 1
        head = struct.pack(">hhih", api, version, self._number, len(self._client_id)) + self._client_id
        head += NO_TAGS if flexible else b""
        pieces: list[bytes | memoryview] = [head, *body]
        pieces.insert(0, struct.pack(">i", sum(map(len, pieces))))
        self._unsent += map(memoryview, _joined(pieces))
        self._asked.append((self._number, flexible, note))
        return self._number

    def push(self) -> None:
        """Send as much as the socket takes now."""
        while self._unsent:
            try:
                if self._gathers:
                    sent = self._socket.sendmsg([self._unsent[i] for i in range(min(_PIECES, len(self._unsent)))])
                else:
                    sent = self._socket.send(self._unsent[0][:_TLS_PIECE])  # which is sent whole or not at all
            except _LATER:
                return
            self.moved_at = system.monotonic()
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.popleft())
            if sent:
                self._unsent[0] = self._unsent[0][sent:]

    def receive(self, read: Callable[[FieldReader], T]) -> list[tuple[int, A, T]]:
        """Return the responses that have arrived, in the order of the requests: number, note, and the body as ``read``
        returns it.

        Raises OSError, also for a response that was not requested or is too large, so that a broker cannot send without
        end.
        """
        complete: list[tuple[int, A, T]] = []
        while True:
            try:
                complete += self._take(read)
            except _LATER:
                return complete
            except _Closed:
                # Responses before the end still count; the next call raises.
                if complete:
                    return complete
                raise

    def answer(self, read: Callable[[FieldReader], T], timeout_s: float, slowest: float = math.inf) -> T:
        """Wait for the response to the only outstanding request. The broker may be silent for ``timeout_s``; a whole
        response may take that long, and a second more for each ``slowest`` bytes. Raises OSError."""
        until = system.monotonic() + timeout_s
        try:
            while True:
                left = min(timeout_s, until + self._filled / slowest - system.monotonic())
                if left <= 0:
                    raise TimeoutError("the broker's answer does not come to an end in time")
                self._socket.settimeout(left)
                self.push()
                for _, _, answer in self._take(read):
                    return answer
        finally:
            self._socket.setblocking(False)

    def _take(self, read: Callable[[FieldReader], T]) -> list[tuple[int, A, T]]:
        """Return the responses that are complete after one read of the socket."""
        try:
            count = self._receive()
        except (*_LATER, TimeoutError):
            raise
        except OSError as error:
            check_certificate(error)
            count = 0
        if not count:
            raise _Closed(self._why_closed())
        self.moved_at = system.monotonic()
        return self._complete(read)

    def _why_closed(self) -> str:
        if self._answered:
            return "the broker has closed the connection"
        expected = "TLS or SASL" if self._gathers else "SASL"
        return f"the broker has closed the connection at once: it may expect {expected} (kafka.security.protocol)"

    def _receive(self) -> int:
        """Read once from the socket, into the buffer if a large response is on its way; returns the number of bytes."""
        if self._size:
            count = self._socket.recv_into(memoryview(self.buffer)[_FRONT + self._filled : _FRONT + self._size])
            self._filled += count
            return count
        data = self._socket.recv(self.ahead)
        self._received += data
        return len(data)

    def _complete(self, read: Callable[[FieldReader], T]) -> list[tuple[int, A, T]]:
        if self._size:
            if self._filled < self._size:
                return []
            size, self._size, self._filled = self._size, 0, 0
            return [self._answer(FieldReader(self.buffer, _FRONT + size, _FRONT), read)]
        answers, at = [], 0
        while len(self._received) - at >= 4:
            (size,) = struct.unpack_from(">i", self._received, at)
            at += 4
            if not 0 < size <= self.largest:
                raise ConnectionError(
                    "the broker's answer has an impossible size: it may expect TLS, or not speak Kafka's protocol"
                )
            here = self._received[at : at + size]
            if len(here) < size:
                if size <= self.ahead:
                    at -= 4
                    break
                self._begin_large(size, here)
            else:
                answers.append(self._answer(FieldReader(bytes(here)), read))
            at += size
        del self._received[:at]
        return answers

    def _begin_large(self, size: int, here: bytearray) -> None:
        """Receive the rest of a response that begins with these bytes into the buffer."""
        if len(self.buffer) < _FRONT + size:
            self.buffer = bytearray(_FRONT + size)
        self.buffer[_FRONT : _FRONT + len(here)] = here
        self._size, self._filled = size, len(here)

    def _answer(self, fields: FieldReader, read: Callable[[FieldReader], T]) -> tuple[int, A, T]:
        if not self._asked:
            raise OSError("the broker answers, though nothing was asked")
        asked, flexible, note = self._asked[0]
        try:
            (number,) = fields.unpack(_NUMBER)
            if flexible:
                fields.skip_tags()
            if number != asked:
                raise OSError("the broker answers another request")
            answer = number, note, read(fields)
        except (struct.error, IndexError, UnicodeDecodeError):
            raise OSError("the broker's answer makes no sense") from None
        self._asked.popleft()
        self._answered = True
        return answer


def check_certificate(error: OSError) -> None:
    """Raise `CertificateRefused` if the broker rejected the client's certificate. With TLS 1.3, it does so after the
    handshake."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
        raise CertificateRefused(
            "the broker wants a certificate of the client, or another one than kafka.ssl.keystore.* or "
            f"kafka.ssl.certificate.* has ({reason})"
        ) from None


def wait(connections: Iterable[Connection[Any]], until: float) -> None:
    """Wait until one of the connections can send or receive, or until that time of the monotonic clock."""
    poll = system.poll()
    for connection in connections:
        poll.register(connection, select.POLLIN | (select.POLLOUT if connection.sending else 0))
    poll.poll(max(0.0, 1000 * (until - system.monotonic())) + 1)


def _joined(pieces: Iterable[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return the pieces, with small neighbours joined."""
    result: list[bytes | memoryview] = []
    small: list[bytes | memoryview] = []
    for piece in pieces:
        if len(piece) < 4096:
            small.append(piece)
        else:
            result += b"".join(small), piece
            small = []
    return [*result, b"".join(small)]


_NUMBER = struct.Struct(">i")
