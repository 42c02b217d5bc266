"""Until when brokers take a connection to be who it said it is (KIP-368): where they set `connections.max.reauth.ms`,
or where a token expires.

A broker closes a connection that is used for longer. Ours are replaced before that, by new ones that say it again: with
the token, password or certificate of then.
"""

from __future__ import annotations

import socket
import weakref

from spark_eos import system

#: Of a session, after which a connection is not used for another request.
_SHARE = 0.85

_due: weakref.WeakKeyDictionary[socket.socket, float] = weakref.WeakKeyDictionary()


def begin(broker: socket.socket, began: float, lifetime_ms: int) -> None:
    """The broker has said for how long it is enough; 0 for ever. ``began``: by the monotonic clock."""
    if lifetime_ms > 0:
        _due[broker] = began + _SHARE * lifetime_ms / 1000


def is_due(broker: socket.socket) -> bool:
    """Whether the connection is to be replaced, when nothing is awaited on it."""
    return bool(_due) and system.monotonic() >= _due.get(broker, float("inf"))
