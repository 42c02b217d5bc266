"""A TCP proxy in front of one broker, which can cut, delay and reset what goes through it. Loopback only."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Awaitable
from typing import Any

from spark_eos.devcluster.ports import free_ports

_CHUNK = 64 << 10


class Proxy:
    """Listens on ``port`` and passes everything on to ``upstream``, which may be set later. Close it."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self.upstream: int | None = None
        self.connections = 0
        self.resets = 0
        self._delay = 0.0
        self._open: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy {self.port}", daemon=True)
        self._thread.start()
        self.restore()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Drop every connection, and refuse new ones."""
        self._run(self._cut())

    def restore(self) -> None:
        """Let new connections in, and pass everything on at once."""
        self._run(self._restore())

    def delay(self, seconds: float) -> None:
        """Hold back whatever comes, from either side, for so long."""
        self._delay = seconds

    def reset_after(self, bytes_: int) -> None:
        """Reset each present connection when it has passed on so many bytes more from the broker."""
        self._run(self._arm(bytes_))

    def close(self) -> None:
        self.cut()
        self._run(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, action: Awaitable[Any]) -> None:
        asyncio.run_coroutine_threadsafe(action, self._loop).result(30)

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
        self._delay = 0.0
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _arm(self, bytes_: int) -> None:
        for connection in self._open:
            connection.left = bytes_

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(writer, broker_writer)
        self._open.add(connection)
        with contextlib.suppress(OSError):
            await asyncio.wait(
                [
                    asyncio.ensure_future(self._pump(connection, reader, broker_writer, from_broker=False)),
                    asyncio.ensure_future(self._pump(connection, broker_reader, writer, from_broker=True)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        self._open.discard(connection)
        connection.reset()

    async def _pump(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_broker: bool
    ) -> None:
        due = 0.0
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                cut_off = from_broker and connection.left is not None and len(data) >= connection.left
                if cut_off:
                    data = data[: connection.left]
                elif from_broker and connection.left is not None:
                    connection.left -= len(data)
                due = max(due, self._loop.time() + self._delay)  # never out of order
                if due > self._loop.time():
                    self._loop.call_at(due, writer.write, data)
                else:
                    writer.write(data)
                    await writer.drain()
                if cut_off:
                    self.resets += 1
                    return


class _Connection:
    """``left``: the bytes from the broker after which it is to be reset, if it is."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self._writers = writers
        self.left: int | None = None

    def reset(self) -> None:
        for writer in self._writers:
            with contextlib.suppress(OSError):
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
