"""Events of queries, sent to the metrics of the process that runs Spark's driver.

Commits run in Python workers that Spark starts and ends as it likes, on the driver's machine. They send events through
a Unix socket in a folder that only its owner can enter; Spark pickles its path with the data source. Nothing here
raises or retries, or waits longer than a moment: if nobody listens, the event is lost, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from dataclasses import dataclass

#: Seconds for an event that does not fit into the socket's buffer (200 kB on Linux), such as the lag of more than 4,000
#: partitions, while the listener takes its beginning.
_SEND_S = 0.2


@dataclass(frozen=True)
class Events:
    """Destination of events: the socket at ``path``, or none, which costs nothing."""

    path: str | None = None

    def __bool__(self) -> bool:
        return self.path is not None

    def tell(self, event: str, **values: object) -> None:
        """Send an event with the time of day, in seconds, as ``at``. The values become JSON; none may be a secret."""
        if self.path is None:
            return
        # Values that are not JSON, no such socket, a listener that has fallen behind by a hundred events
        with contextlib.suppress(OSError, AttributeError, TypeError, ValueError):
            line = json.dumps({"event": event, "at": time.time(), **values}, separators=(",", ":"))
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.setblocking(False)
                connection.connect(self.path)
                connection.settimeout(_SEND_S)
                connection.sendall(line.encode() + b"\n")


NOWHERE = Events()
_told: list[Events] = [NOWHERE]


def here() -> Events:
    """Return the destination of this process's events: none, until it has metrics."""
    return _told[-1]


def tell_to(events: Events) -> None:
    """Send events there, of queries that this process starts from now on."""
    _told[:] = [events]
