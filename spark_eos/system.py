"""What speaking to brokers takes from the operating system: sockets, which of them are ready, and clocks.

It is the one seam between the connections and the world: a simulation replaces these names by its own, so they are
called as ``system.monotonic()``, and never imported by themselves. TLS needs real sockets.
"""

from __future__ import annotations

import select
import socket as sockets
import time
from functools import partial

#: Seconds by a clock that never goes back.
monotonic = time.monotonic
#: The same, of a clock that goes on while the machine sleeps.
steady = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
#: Seconds since 1970.
time_of_day = time.time
sleep = time.sleep
socket = sockets.socket
getaddrinfo = sockets.getaddrinfo
poll = select.poll
