"""Recorded events: the latest in memory, and all of them in a file, for `spark-eos plot`."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import TextIO

from spark_eos.ops.metrics.hub import Event, parsed

_MOST_RECENT = 5_000
#: Bytes of the latest events: 5,000 with the lag of 100 partitions, which is one of 5 kB each second.
_LARGEST_RECENT = 32 << 20
#: Bytes of a file of events; beyond that, it is renamed to ``….1``, and replaces the file before.
LARGEST_FILE = 64 << 20
#: There are two at a time; while they are read, one more may come.
_FILES = 4


class Recent:
    """The latest events. ``largest``: bytes of all of them together."""

    def __init__(self, largest: int = _LARGEST_RECENT) -> None:
        self._lines: deque[bytes] = deque()
        self._largest, self._size = largest, 0

    def take(self, event: Event) -> None:
        """Add the event; the oldest ones give way to it."""
        line = _line(event).encode()
        self._lines.append(line)
        self._size += len(line)
        while len(self._lines) > _MOST_RECENT or self._size > self._largest:
            self._size -= len(self._lines.popleft())

    def as_lines(self) -> bytes:
        """Return the events, oldest first, each as a line of JSON."""
        return b"".join(tuple(self._lines))


class Recorder:
    """Appends events to a file. Raises OSError if it cannot be written."""

    def __init__(self, path: str, largest: int = LARGEST_FILE) -> None:
        self._path, self._largest = Path(path), largest
        self._file: TextIO = self._opened()

    def take(self, event: Event) -> None:
        """Append one event. A file that is too large is first renamed to ``.1``, and replaces the file before. After a
        failure, the next event is tried, too."""
        if self._file.closed:
            self._file = self._opened()
        if self._file.tell() > self._largest:
            self._file.close()
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._file = self._opened()
        self._file.write(_line(event))

    def close(self) -> None:
        self._file.close()

    def _opened(self) -> TextIO:
        return self._path.open("a", encoding="utf-8", buffering=1)


class EventFile:
    """A file that a `Recorder` writes or has written. ``most``: how many events are kept, the newest ones; None for
    all."""

    def __init__(self, path: Path, most: int | None = None) -> None:
        self._path, self._older = path, Path(f"{path}.1")
        self._events: deque[Event] = deque(maxlen=most)
        #: How far each file was read, by its first line: that stays when the file becomes the older one, which its
        #: name does not, and no other file has it, as one may have the inode of a file that is gone.
        self._read: dict[bytes, int] = {}

    def read(self) -> list[Event]:
        """Return the events so far, of the older file first. Only reads lines that are new since the last call. Raises
        OSError."""
        older = [self._older] if self._older.exists() else []
        for path in (*older, self._path):
            with path.open("rb") as file:
                first = file.readline()
                file.seek(self._read.get(first, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            if whole:
                self._events += parsed(whole)
                self._read[first] = self._read.pop(first, 0) + len(whole)
        for first in list(self._read)[:-_FILES]:  # of files that are gone
            del self._read[first]
        return list(self._events)


def _line(event: Event) -> str:
    return json.dumps(event, separators=(",", ":")) + "\n"
