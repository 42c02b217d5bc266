"""Picks loopback ports for listeners."""

from __future__ import annotations

import itertools
import random
import socket

from spark_eos.errors import stop

#: Below the ranges that Linux (from 32768) and macOS (from 49152) take for the client side of connections: a client
#: that keeps calling a broker that is down would otherwise sooner or later get the broker's port for itself, and
#: connect to itself.
_FIRST, _LAST = 20_000, 32_000
_HIGHEST = 65_535


def is_free(port: int) -> bool:
    """Return whether a listener could take the port right now."""
    with socket.socket() as probe:
        # As the broker does it: connections of an earlier run in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """Return distinct ports that are free now. Another process may take one before it is used: be ready to pick again.

    Raises DevClusterError EOS_DEVCLUSTER_CONFIG where there are fewer.
    """
    candidates = random.sample(range(_FIRST, _LAST), min(50 * count, _LAST - _FIRST))
    ports = list(itertools.islice(filter(is_free, candidates), count))
    if len(ports) < count:
        raise stop("EOS_DEVCLUSTER_CONFIG.no_ports", count=count)
    return ports


def check_free(port: int) -> None:
    """Raise DevClusterError (EOS_DEVCLUSTER_CONFIG) where something listens there, or nothing can."""
    if not 1 <= port <= _HIGHEST:
        raise stop(
            "EOS_DEVCLUSTER_CONFIG.port",
            port=port,
            why="ports are from 1 to 65535, and broker i listens on the given one + i",
        )
    if not is_free(port):
        raise stop("EOS_DEVCLUSTER_CONFIG.port", port=port, why="it is in use")
