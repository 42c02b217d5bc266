"""What our code takes for sockets: bytes that travel in pieces, with delay, and not always to the end."""

from __future__ import annotations

import select
import socket as sockets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from .world import World

_LATENCY_S = 0.0002
_ROOM = 1 << 16


@dataclass
class Line:
    """How one connection behaves. Numbers are bytes in that direction since its beginning; None for never.

    ``cut_up``, ``cut_down``: it breaks when so many have gone. ``mute_up``, ``mute_down``: what comes after them never
    arrives, and nobody says so. ``reset``: a break is an error, not an end. ``room``: what the system takes at once.
    ``piece``: bytes that arrive at a time, ``pause_s`` after one another.
    """

    cut_up: int | None = None
    cut_down: int | None = None
    mute_up: int | None = None
    mute_down: int | None = None
    reset: bool = False
    room: int = _ROOM
    piece: int | None = None
    pause_s: float = 0.0

    @property
    def harmless(self) -> bool:
        """It breaks nowhere, and is slow at most."""
        ends = (self.cut_up, self.cut_down, self.mute_up, self.mute_down)
        return all(end is None for end in ends) and self.pause_s < 0.01


class Host(Protocol):
    """A broker's port. ``answers``: whether somebody is there; False refuses, None says nothing."""

    answers: bool | None

    def accept(self, socket: Socket) -> tuple[Peer, Line]: ...


class Peer(Protocol):
    """The broker's end of a connection."""

    def take(self, data: bytes) -> None: ...

    def gone(self) -> None:
        """The client has closed it, or it broke."""
        ...


def addresses(world: World, host: str, port: int, family: int, kind: int) -> list[tuple[Any, ...]]:
    """As `socket.getaddrinfo`."""
    named = world.names.get(host, [(sockets.AF_INET, (host, port))])
    return [(family, kind, 0, "", place) for family, place in named]


class Socket:
    """Our end. This world has no IP version 6."""

    def __init__(self, world: World, family: int = sockets.AF_INET, *_: int) -> None:
        if family == sockets.AF_INET6:
            raise OSError("Address family not supported by protocol")
        self._world = world
        self._number = world.next_number()
        world.sockets[self._number] = self
        self._timeout: float | None = None
        self._inbox = bytearray()
        self._peer: Peer | None = None
        self.line = Line()
        self.up = self.down = 0
        self._travelling = 0
        self._last_arrival = 0.0
        self._state = "new"  # open, ended, reset, closed

    # As `socket.socket`

    def connect(self, place: tuple[str, int]) -> None:
        host = self._world.hosts.get(place)
        self._world.wait(lambda: False, _LATENCY_S)
        if host is not None and host.answers is None:
            self._world.wait(lambda: False, self._timeout)
            raise TimeoutError("timed out")
        if host is None or not host.answers:
            raise ConnectionRefusedError("refused")
        self._state = "open"
        self._peer, self.line = host.accept(self)

    def setsockopt(self, *_: int) -> None: ...

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def setblocking(self, yes: bool) -> None:
        self._timeout = None if yes else 0.0

    def fileno(self) -> int:
        return -1 if self._state == "closed" else self._number

    def close(self) -> None:
        if self._state != "closed":
            if self._peer is not None:
                self._world.at(_LATENCY_S, self._peer.gone)
            self._state = "closed"
            self._world.sockets.pop(self._number, None)

    def sendmsg(self, pieces: Iterable[memoryview]) -> int:
        return self.send(memoryview(b"".join(pieces)))

    def send(self, data: memoryview) -> int:
        self._wait_for(self.writable)
        if self._state != "open":
            raise OSError("closed") if self._state == "closed" else BrokenPipeError("broken pipe")
        sent = bytes(data[: self.line.room - self._travelling])
        self._travelling += len(sent)
        self._world.at(_LATENCY_S, self._deliver, sent)
        return len(sent)

    def recv(self, size: int) -> bytes:
        self._wait_for(self.readable)
        if self._inbox:
            data = bytes(self._inbox[:size])
            del self._inbox[:size]
            return data
        if self._state == "ended":
            return b""
        raise ConnectionResetError("reset by peer") if self._state == "reset" else OSError("closed")

    def recv_into(self, place: memoryview) -> int:
        data = self.recv(len(place))
        place[: len(data)] = data
        return len(data)

    # What poll asks

    def readable(self) -> bool:
        return bool(self._inbox) or self._state != "open"

    def writable(self) -> bool:
        return self._travelling < self.line.room or self._state != "open"

    # The other end

    def answer(self, data: bytes) -> None:
        """What the broker says arrives here, in time and in order."""
        line = self.line
        step = line.piece or len(data) or 1
        at = self._world.now + _LATENCY_S * (1 + self._world.chance.random())
        for begin in range(0, len(data), step):
            at = max(at, self._last_arrival) + (line.pause_s if begin else 0.0)
            self._last_arrival = at
            self._world.at(at - self._world.now, self._arrive, data[begin : begin + step])

    def end(self, reset: bool = False) -> None:
        """The broker is gone. What is under way arrives before, unless it is a reset."""
        self._world.at(max(_LATENCY_S, self._last_arrival - self._world.now), self._break, reset)

    def _arrive(self, data: bytes) -> None:
        if self._state != "open":
            return
        line, before = self.line, self.down
        self.down += len(data)
        for most in (line.mute_down, line.cut_down):
            if most is not None:
                data = data[: max(0, most - before)]
        self._inbox += data
        if line.cut_down is not None and self.down >= line.cut_down:
            self._break(line.reset)

    def _deliver(self, data: bytes) -> None:
        """What we sent arrives at the broker. A muted line takes what fits into the system's buffer, and no more."""
        line, before = self.line, self.up
        self.up += len(data)
        if line.mute_up is not None and self.up > line.mute_up:
            data = data[: max(0, line.mute_up - before)]
        else:
            self._travelling -= len(data)
        if line.cut_up is not None:
            data = data[: max(0, line.cut_up - before)]
        if data and self._peer is not None:
            self._peer.take(data)
        if line.cut_up is not None and self.up >= line.cut_up:
            self._break(line.reset)

    def _break(self, reset: bool) -> None:
        if self._state == "open":
            self._state = "reset" if reset else "ended"
            if reset:
                self._inbox.clear()
            assert self._peer is not None
            self._peer.gone()

    def _wait_for(self, ready: Any) -> None:
        self._world.settle()
        if self._timeout == 0.0:
            if not ready():
                raise BlockingIOError("not now")
        elif not self._world.wait(ready, self._timeout):
            raise TimeoutError("timed out")


class Poll:
    """As `select.poll`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._asked: dict[int, tuple[Socket, int]] = {}

    def register(self, of: Any, events: int) -> None:
        number = of.fileno()
        if number < 0:
            raise ValueError("a closed socket")
        self._asked[number] = self._world.sockets[number], events

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        self._world.settle()
        self._world.wait(lambda: bool(self._ready()), milliseconds / 1000)
        return self._ready()

    def _ready(self) -> list[tuple[int, int]]:
        found = []
        for number, (socket, events) in self._asked.items():
            now = select.POLLIN * socket.readable() | select.POLLOUT * socket.writable()
            if now & events:
                found.append((number, now & events))
        return found
