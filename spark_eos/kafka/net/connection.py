"""Requests on a socket of their own, without waiting for the answers to those before.

A broker works on the requests of one connection one after the other, and answers in that order. Nothing here waits but
`wait`: what the socket does not take now is sent later, and answers are taken when they are there.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from spark_eos import system
from spark_eos.kafka.net import sessions
from spark_eos.kafka.net.schema import NO_TAGS, FieldReader

#: An answer has some dozens of bytes to a partition; one that says it has more than this is none.
_LARGEST = 1 << 26
_PIECES = 64
_RECEIVED = 1 << 16
_LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

A = TypeVar("A")
T = TypeVar("T")


class Connection(Generic[A]):
    """One connection to one broker. Once it is broken, every call raises OSError; close it then.

    With each request goes a note, which comes back with its answer. ``moved_at``: when bytes last went either way, by
    the monotonic clock.
    """

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
                data = self._socket.recv(_RECEIVED)
            except _LATER:
                return complete
            except OSError:
                data = b""
            if not data:
                # What came before the end still counts; the next call says that this is the end.
                if complete:
                    return complete
                raise OSError("the broker has closed the connection")
            self.moved_at = system.monotonic()
            self._received += data
            complete += self._complete(read)

    def _complete(self, read: Callable[[FieldReader], T]) -> list[tuple[int, A, T]]:
        answers, at = [], 0
        while len(self._received) - at >= 4:
            (size,) = struct.unpack_from(">i", self._received, at)
            if not 0 <= size <= _LARGEST:
                raise OSError("the broker's answer has an impossible size")
            if len(self._received) - at - 4 < size:
                break
            answers.append(self._answer(FieldReader(bytes(self._received[at + 4 : at + 4 + size])), read))
            at += 4 + size
        del self._received[:at]
        return answers

    def _answer(self, fields: FieldReader, read: Callable[[FieldReader], T]) -> tuple[int, A, T]:
        if not self._asked:
            raise OSError("the broker answers, though nothing was asked")
        asked, flexible, note = self._asked.popleft()
        try:
            (number,) = fields.of(_NUMBER)
            if flexible:
                fields.skip_tags()
            if number != asked:
                raise OSError("the broker answers another request")
            return number, note, read(fields)
        except (struct.error, IndexError, UnicodeDecodeError):
            raise OSError("the broker's answer makes no sense") from None


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
