"""HTTP servers of tests, each in a thread of its own."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Reads bodies and sends answers as a whole, and prints nothing."""

    def body(self) -> bytes:
        """The request's; empty where it has none."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, status: int, content: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """``headers``: beside the length, which is the content's unless it is among them."""
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | dict(headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def reply_json(self, status: int, answer: object) -> None:
        self.reply(status, json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def log_message(self, *_: object) -> None:
        """To nowhere."""


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """To nowhere."""


@contextlib.contextmanager
def answering(
    handler: type[BaseHTTPRequestHandler], *, tls: ssl.SSLContext | None = None, quiet: bool = False, port: int = 0
) -> Iterator[int]:
    """The port of the loopback, a free one unless it is given, where the handler answers until the end. ``quiet``:
    nothing is said of clients that have gone."""
    server = (_Quiet if quiet else ThreadingHTTPServer)(("127.0.0.1", port), handler)
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
