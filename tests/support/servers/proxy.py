"""A TCP proxy in front of one broker, which can cut, delay and reset what goes through it. Loopback only.

Beside what ends a connection, it does what a sick network does: it loses one direction, lets little through, stalls now
and then, forgets connections without a word, and changes bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Awaitable
from typing import Any

from spark_eos.tools.devcluster.ports import free_ports
from tests.support.waiting import TIMEOUT

_CHUNK = 64 << 10
#: In so many pieces goes a second's share of a trickle.
_PIECES_PER_S = 10
#: Bytes of an answer's size and correlation id.
HEADER = 8


class Proxy:
    """Listens on ``port`` and passes everything on to ``upstream``, which may be set later. Close it."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self.upstream: int | None = None
        self.connections = 0
        self.resets = 0
        self.flips = 0
        #: Bytes that the broker has sent.
        self.answered = 0
        self._flows = {answers: asyncio.Event() for answers in (True, False)}
        self._open: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy {self.port}", daemon=True)
        self._thread.start()
        self.restore()

    @property
    def awaited(self) -> int:
        """How many requests have come whose answer has not been passed on."""
        return sum(of.frames[False].ended - of.passed for of in list(self._open))  # which is changed meanwhile

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Drop every connection, and refuse new ones."""
        self._run(self._cut())

    def restore(self) -> None:
        """Let new connections in, and pass everything on at once, also what was held back."""
        self._run(self._restore())

    def delay(self, seconds: float) -> None:
        """Hold back whatever comes, from either side, for so long."""
        self._delay = seconds

    def reset_after(self, bytes_: int) -> None:
        """Reset each present connection when it has passed on so many bytes more from the broker."""
        self._run(self._arm(bytes_))

    def lose(self, *, answers: bool) -> None:
        """Let nothing through in one direction: answers, or requests. Connections stay open, and new ones are taken."""
        self._run(self._lose(answers))

    def trickle(self, bytes_per_s: int) -> None:
        """Let no more than that through, on each connection and in each direction."""
        self._rate = bytes_per_s

    def stall(self, chance: float, seconds: float) -> None:
        """Whatever comes waits for so long with this chance, and all behind it."""
        self._chance, self._stall_s, self._random = chance, seconds, random.Random(0)

    def forget(self) -> None:
        """Leave each present connection half open: the broker's end is gone, and nothing ever tells the client."""
        self._run(self._forget())

    def flip(self, *, at: int | None = None, within: bytes = b"", chance: float = 1.0) -> None:
        """Change a bit of answers, each with this chance: in byte ``at`` of its header, or ``within`` these bytes."""
        self._flip_at, self._flip_within = at, within
        self._flip_chance, self._random = chance, random.Random(0)

    def close(self) -> None:
        self.cut()
        self._run(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, action: Awaitable[Any]) -> None:
        asyncio.run_coroutine_threadsafe(action, self._loop).result(TIMEOUT)

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._open):
            connection.reset()

    async def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _restore(self) -> None:
        self._delay = self._chance = self._stall_s = 0.0
        self._rate: int | None = None
        self._flip_at: int | None = None
        self._flip_within, self._flip_chance = b"", 0.0
        for flows in self._flows.values():
            flows.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _arm(self, bytes_: int) -> None:
        for connection in self._open:
            connection.left = bytes_

    async def _lose(self, answers: bool) -> None:
        self._flows[answers].clear()

    async def _forget(self) -> None:
        for connection in self._open:
            connection.forgotten = True
            connection.reset_broker()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(writer, broker_writer)
        self._open.add(connection)
        from_client = asyncio.ensure_future(self._pump(connection, reader, broker_writer, from_broker=False))
        from_broker = asyncio.ensure_future(self._pump(connection, broker_reader, writer, from_broker=True))
        with contextlib.suppress(OSError):
            await asyncio.wait([from_client, from_broker], return_when=asyncio.FIRST_COMPLETED)
            if connection.forgotten:
                await from_client
        self._open.discard(connection)
        connection.reset()

    async def _pump(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_broker: bool
    ) -> None:
        due = 0.0
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                if connection.forgotten:
                    continue
                begins = connection.frames[from_broker].take(data)
                ended = connection.frames[from_broker].ended
                if from_broker:
                    self.answered += len(data)
                    data = self._flipped(begins, data)
                await self._wait_its_turn(from_broker)
                cut_off = from_broker and connection.left is not None and len(data) >= connection.left
                if cut_off:
                    data = data[: connection.left]
                elif from_broker and connection.left is not None:
                    connection.left -= len(data)
                due = max(due, self._loop.time() + self._delay)  # never out of order
                if due > self._loop.time():
                    self._loop.call_at(due, writer.write, data)
                else:
                    await self._pass_on(writer, data)
                if from_broker:
                    connection.passed = ended
                if cut_off:
                    self.resets += 1
                    return

    async def _wait_its_turn(self, from_broker: bool) -> None:
        await self._flows[from_broker].wait()
        if self._chance and self._random.random() < self._chance:
            await asyncio.sleep(self._stall_s)

    async def _pass_on(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """All at once, or as a trickle for as long as it is one."""
        while data:
            size = max(1, self._rate // _PIECES_PER_S) if self._rate else len(data)
            writer.write(data[:size])
            await writer.drain()
            data = data[size:]
            if self._rate:
                await asyncio.sleep(1 / _PIECES_PER_S)

    def _flipped(self, begins: list[int], data: bytes) -> bytes:
        """The answers, which begin there, with bits changed where that is asked for."""
        places = [start + self._flip_at for start in begins if self._flip_at is not None]
        if self._flip_within and self._flip_within in data:
            places.append(data.index(self._flip_within))
        changed = bytearray(data)
        for place in places:
            if self._random.random() < self._flip_chance:
                changed[place] ^= 0x40
                self.flips += 1
        return bytes(changed)


class _Connection:
    """``left``: the bytes from the broker after which it is to be reset, if it is. ``forgotten``: it is half open."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self._client, self._broker = client, broker
        self.left: int | None = None
        self.forgotten = False
        #: What has come, by whether it is from the broker; and how many answers have been passed on whole.
        self.frames = {True: _Frames(), False: _Frames()}
        self.passed = 0

    def reset(self) -> None:
        for writer in (self._client, self._broker):
            _reset(writer)

    def reset_broker(self) -> None:
        _reset(self._broker)


class _Frames:
    """What goes in one direction."""

    def __init__(self) -> None:
        #: How many have come to their end.
        self.ended = 0
        self._size = bytearray()
        self._skip = 0

    def take(self, data: bytes) -> list[int]:
        """Where in these bytes requests or answers begin; without those whose header is not all there."""
        found, at = [], 0
        while at < len(data):
            if self._skip:
                skipped = min(self._skip, len(data) - at)
                self._skip -= skipped
                self.ended += not self._skip
                at += skipped
                continue
            if not self._size and len(data) - at >= HEADER:
                found.append(at)
            piece = data[at : at + 4 - len(self._size)]
            self._size += piece
            at += len(piece)
            if len(self._size) == 4:
                self._skip = int.from_bytes(self._size, "big")
                self._size.clear()
        return found


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
