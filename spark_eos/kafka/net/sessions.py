"""Re-authentication (KIP-368): brokers limit a SASL session by `connections.max.reauth.ms` or by a token's expiry.

A broker closes a connection that is used after its session has ended. This client replaces the connection before that;
the new one authenticates with the current token, password or certificate.
"""

from __future__ import annotations

import socket
import weakref

from spark_eos.base import system

#: The share of a session after which its connection gets no further request.
_SHARE = 0.85

_due: weakref.WeakKeyDictionary[socket.socket, float] = weakref.WeakKeyDictionary()


def begin(broker: socket.socket, began: float, lifetime_ms: int) -> None:
    """Note how long the broker lets the session last; 0: without limit. ``began``: when it began, by the monotonic
    clock."""
    if lifetime_ms > 0:
        _due[broker] = began + _SHARE * lifetime_ms / 1000


def is_due(broker: socket.socket) -> bool:
    """Return whether to replace the connection as soon as it is idle."""
    return bool(_due) and system.monotonic() >= _due.get(broker, float("inf"))
