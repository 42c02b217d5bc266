"""The operating system's sockets, polling and clocks, as the connections to brokers use them.

A simulation replaces these names by its own, so callers write ``system.monotonic()``, and never import a name by
itself. TLS needs real sockets.
"""

from __future__ import annotations

import select
import socket as sockets
import time
from functools import partial

#: Seconds by a clock that never goes back.
monotonic = time.monotonic
#: Seconds by a monotonic clock that goes on while the machine sleeps.
steady = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
#: Seconds since 1970.
time_of_day = time.time
sleep = time.sleep
socket = sockets.socket
getaddrinfo = sockets.getaddrinfo
poll = select.poll
