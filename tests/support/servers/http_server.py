"""HTTP servers of tests, each in a thread of its own."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """To nowhere."""


@contextlib.contextmanager
def answering(
    handler: type[BaseHTTPRequestHandler], *, tls: ssl.SSLContext | None = None, quiet: bool = False
) -> Iterator[int]:
    """The port, a free one of the loopback, where the handler answers until the end. ``quiet``: nothing is said of
    clients that have gone."""
    server = (_Quiet if quiet else ThreadingHTTPServer)(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
