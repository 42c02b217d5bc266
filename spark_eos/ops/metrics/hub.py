"""Collects events from the processes where they happen, and passes them to consumers that count, show or keep them."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from spark_eos.base.log import logger
from spark_eos.base.metrics_events import Events

#: ``event``: its kind; ``at``: seconds since 1970; other fields depend on the kind.
Event = Mapping[str, Any]

#: Bytes of the path of a Unix socket; Linux allows 107, macOS 103.
_LONGEST_PATH = 100
_LARGEST = 1 << 20
_READ_S = 1.0
_WAITING = 128


class Consumer(Protocol):
    """Takes each event, in the order of arrival."""

    def take(self, event: Event) -> None: ...


class Hub:
    """Passes each event to all ``consumers``, one at a time. The first failure of a consumer is logged; it gets later
    events all the same."""

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._consumers = consumers
        self._lock = threading.Lock()
        self._failed: set[Consumer] = set()

    def take(self, event: Event) -> None:
        """Pass the event to all consumers. Never raises."""
        with self._lock:
            for consumer in self._consumers:
                try:
                    consumer.take(event)
                except Exception as error:
                    if consumer not in self._failed:
                        name = type(error).__name__
                        logger.warning(
                            "metrics: the event '%s' was not recorded: %s: %s", event.get("event"), name, error
                        )
                    self._failed.add(consumer)


class Inbox:
    """The socket to which other processes of this machine and user send events (`spark_eos.base.metrics_events`).

    Raises OSError where there can be none.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._folder = _short_folder()
        path = str(self._folder / "events")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(path)
            self._socket.listen(_WAITING)
        except OSError:
            self.close()
            raise
        self.events = Events(path)
        threading.Thread(target=self._serve, name="eos metrics", daemon=True).start()

    def close(self) -> None:
        """Stop taking events, and remove the socket's folder."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_READ_S)
                for event in parsed(_read(connection)):
                    self._hub.take(event)


def parsed(data: bytes) -> Iterator[Event]:
    """Yield the events in lines of JSON. Other lines are skipped, such as half a line of a killed process."""
    for line in data.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict) and isinstance(event.get("at"), int | float) and "event" in event:
                yield event


def _read(connection: socket.socket) -> bytes:
    parts: list[bytes] = []
    while sum(map(len, parts)) < _LARGEST and (part := connection.recv(1 << 16)):
        parts.append(part)
    return b"".join(parts)


def _short_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="spark-eos-"))
    if len(bytes(folder)) + len("/events") <= _LONGEST_PATH:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="spark-eos-", dir="/tmp"))
