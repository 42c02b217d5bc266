"""Requests on a socket of their own, without waiting for the answers to those before.

A broker works on the requests of one connection one after the other, and answers in that order. What the socket does
not take now is sent later, and answers are taken when they are there. Nothing waits but `wait`, for many connections,
and `Connection.answer`, for one.
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

from spark_eos import system
from spark_eos.kafka.net import sessions
from spark_eos.kafka.net.sasl import Refused
from spark_eos.kafka.net.schema import NO_TAGS, FieldReader

_PIECES = 64

#: Where an answer begins in the buffer. With 0, it lies a few bytes behind where it lay in the kernel's pages, and
#: some processors copy that at a third of their speed: 1 MB takes 0.5 ms instead of 0.2.
_FRONT = 64
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

A = TypeVar("A")
T = TypeVar("T")


class _Closed(ConnectionError):
    pass


class Connection(Generic[A]):
    """One connection to one broker. Once it is broken, every call raises OSError; close it then.

    With each request goes a note, which comes back with its answer. ``moved_at``: when bytes last went either way, by
    the monotonic clock. ``buffer``: memory of answers with more than ``ahead`` bytes, which is used again for the next
    one unless somebody has taken it out.
    """

    #: How many idle connections of this class a `ConnectionPool` keeps, to one broker and to all of them.
    kept_each: ClassVar[int] = 2
    kept_in_all: ClassVar[int] = 16
    #: An answer has some dozens of bytes to a partition; one that says it has more than this is none.
    largest = 1 << 26
    #: So many bytes are received before the size of the next answer is looked at.
    ahead = 1 << 16

    def __init__(self, broker: socket.socket, node: int, client_id: str = "spark-eos") -> None:
        self.node = node
        self.moved_at = system.monotonic()
        self._client_id = client_id.encode()
        self._socket = broker
        self._gathers = not isinstance(broker, ssl.SSLSocket)
        self._number = 0
        self._asked: deque[tuple[int, bool, A]] = deque()
        self._unsent: deque[memoryview] = deque()
        self._received = bytearray()
        self.buffer = bytearray()
        self._size = self._filled = 0  # of the answer that is on its way into the buffer
        broker.setblocking(False)

    def fileno(self) -> int:
        """The socket's, for select and poll."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    @property
    def idle(self) -> bool:
        """Nothing is awaited, so that it can be used for something else."""
        return not self._asked

    @property
    def due(self) -> bool:
        """The broker wants to know again who this is: replace it, when nothing is awaited."""
        return sessions.is_due(self._socket)

    @property
    def sending(self) -> bool:
        """Something is left to be sent."""
        return bool(self._unsent)

    def ask(self, api: int, version: int, body: Iterable[bytes | memoryview], note: A, *, flexible: bool = True) -> int:
        """Queue a request, to be sent by `push`; its number. ``flexible``: of a version whose headers have tags."""
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
                    sent = self._socket.send(self._unsent[0])
            except _LATER:
                return
            self.moved_at = system.monotonic()
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.popleft())
            if sent:
                self._unsent[0] = self._unsent[0][sent:]

    def receive(self, read: Callable[[FieldReader], T]) -> list[tuple[int, A, T]]:
        """The answers that are there, in the order of the requests: number, note, what ``read`` makes of the body.

        A broker that never stops sending is noticed by the first answer that was not asked for, or that is too large.
        """
        complete: list[tuple[int, A, T]] = []
        while True:
            try:
                complete += self._take(read)
            except _LATER:
                return complete
            except _Closed:
                # What came before the end still counts; the next call says that this is the end.
                if complete:
                    return complete
                raise

    def answer(self, read: Callable[[FieldReader], T], timeout_s: float, slowest: float = math.inf) -> T:
        """The answer to the only request that is without one, once it is there. The broker may be silent for
        ``timeout_s``, and has for all of it as long, and a second more for each ``slowest`` bytes. Raises OSError."""
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
        """The answers that are there after one look at the socket."""
        try:
            count = self._receive()
        except (*_LATER, TimeoutError):
            raise
        except OSError as error:
            check_certificate(error)
            count = 0
        if not count:
            raise _Closed("the broker has closed the connection")
        self.moved_at = system.monotonic()
        return self._complete(read)

    def _receive(self) -> int:
        """Take what is there, for the buffer if an answer is on its way into it: how many bytes."""
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
            size, self._size = self._size, 0
            return [self._answer(FieldReader(self.buffer, _FRONT + size, _FRONT), read)]
        answers, at = [], 0
        while len(self._received) - at >= 4:
            (size,) = struct.unpack_from(">i", self._received, at)
            at += 4
            if not 0 < size <= self.largest:
                raise ConnectionError(
                    "the broker's answer has an impossible size: it may not speak Kafka's protocol, or TLS"
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
        """The rest of an answer that begins with these bytes goes into the buffer."""
        if len(self.buffer) < _FRONT + size:
            self.buffer = bytearray(_FRONT + size)
        self.buffer[_FRONT : _FRONT + len(here)] = here
        self._size, self._filled = size, len(here)

    def _answer(self, fields: FieldReader, read: Callable[[FieldReader], T]) -> tuple[int, A, T]:
        if not self._asked:
            raise OSError("the broker answers, though nothing was asked")
        asked, flexible, note = self._asked[0]
        try:
            (number,) = fields.of(_NUMBER)
            if flexible:
                fields.skip_tags()
            if number != asked:
                raise OSError("the broker answers another request")
            answer = number, note, read(fields)
        except (struct.error, IndexError, UnicodeDecodeError):
            raise OSError("the broker's answer makes no sense") from None
        self._asked.popleft()
        return answer


def check_certificate(error: OSError) -> None:
    """Raise `Refused` where the broker has refused a certificate. By TLS 1.3 it says so when the handshake is over."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
        raise Refused(
            "the broker wants a certificate of the client, or another one than kafka.ssl.keystore.* or "
            f"kafka.ssl.certificate.* has ({reason})"
        ) from None


def wait(connections: Iterable[Connection[Any]], until: float) -> None:
    """Until one of them can go on, or that time by the monotonic clock."""
    poll = system.poll()
    for connection in connections:
        poll.register(connection, select.POLLIN | (select.POLLOUT if connection.sending else 0))
    poll.poll(max(0.0, 1000 * (until - system.monotonic())) + 1)


def _joined(pieces: Iterable[bytes | memoryview]) -> list[bytes | memoryview]:
    """Small pieces joined; large ones stay as they are."""
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
