"""What the tests' proxy does to a connection: without this, a gray network that is none would pass every test."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.support.servers.proxy import HEADER, Proxy
from tests.support.waiting import TIMEOUT, wait_for

BODY = b"an answer of a broker"
FRAME = struct.pack(">ii", 4 + len(BODY), 7) + BODY
SILENCE_S = 0.1


class Echo(socketserver.ThreadingTCPServer):
    """A broker that sends back what it ``got``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.got = b""


class Answer(socketserver.BaseRequestHandler):
    """For each connection."""

    server: Echo

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.request.recv(65536):
                self.server.got += data
                self.request.sendall(data)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as broker:
        threading.Thread(target=broker.serve_forever, daemon=True).start()
        yield broker
        broker.shutdown()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with contextlib.closing(Proxy()) as made:
        made.upstream = echo.server_address[1]
        yield made


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    """A connection that works."""
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        connection.settimeout(TIMEOUT)
        assert ask(connection, FRAME) == FRAME
        yield connection


def ask(connection: socket.socket, frame: bytes) -> bytes:
    connection.sendall(frame)
    return receive(connection, len(frame))


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data


def is_silent(connection: socket.socket) -> bool:
    """Neither bytes nor an end."""
    connection.settimeout(SILENCE_S)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(TIMEOUT)
    return False


@pytest.mark.parametrize("answers", [True, False])
def test_one_direction_is_lost_and_comes_back(answers, echo, proxy, client):
    """What was sent meanwhile arrives late, as TCP sends it again."""
    before = len(echo.got)
    proxy.lose(answers=answers)
    client.sendall(FRAME)
    assert is_silent(client)
    wait_for(lambda: proxy.awaited == 1, "the request")
    wait_for(lambda: not answers or len(echo.got) > before, "what passes")
    assert (len(echo.got) > before) == answers
    proxy.restore()
    assert receive(client, len(FRAME)) == FRAME
    wait_for(lambda: not proxy.awaited, "the end of the answer")


def test_a_connection_that_is_half_open(proxy, client):
    """The old one is silent for good, whatever is sent; a new one works."""
    proxy.forget()
    client.sendall(2 * FRAME)
    assert is_silent(client)
    with socket.create_connection(("127.0.0.1", proxy.port)) as fresh:
        fresh.settimeout(TIMEOUT)
        assert ask(fresh, FRAME) == FRAME


@pytest.mark.parametrize("at", [0, HEADER - 1])
def test_a_flipped_byte_of_the_header(at, proxy, client):
    """In each of several answers, and nothing else; the requests stay as they are."""
    proxy.flip(at=at)
    changed = bytearray(FRAME)
    changed[at] ^= 0x40
    assert ask(client, 3 * FRAME) == bytes(3 * changed)
    assert proxy.flips == 3


def test_a_flipped_byte_within_rows(proxy, client):
    """Only in answers that have these bytes."""
    proxy.flip(within=b"answer")
    other = struct.pack(">ii", 9, 7) + b"hello"
    assert ask(client, other) == other
    assert ask(client, FRAME) == FRAME.replace(b"answer", bytes([ord("a") ^ 0x40]) + b"nswer")
