"""The HTTP endpoint: ``/metrics`` for Prometheus, ``/events`` for `spark-eos top` and `spark-eos plot`."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from spark_eos.ops.metrics.recording import Recent

_PLAIN, _LINES = "text/plain; charset=utf-8", "application/x-ndjson"
#: Seconds for a whole request, and again for its response.
_REQUEST_S = 10.0
_LARGEST_REQUEST = 1 << 13
_END = b"\r\n\r\n"
#: Connections at a time; one more closes the oldest.
_MOST = 8
_CLOSE_S = 0.1


class Endpoint:
    """Listens until it is closed; port 0 picks a free one. Raises OSError if the port is in use."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry, recent: Recent) -> None:
        class Handler(_Handler):
            pages = _Pages(registry, recent)

        self._server = _Server((host, port), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(_CLOSE_S,), name="eos endpoint", daemon=True).start()

    def close(self) -> None:
        """Stop serving, and free the port."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: list[socket.socket] = []

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]
        """Handle the request in a thread of its own, of which there are never more than `_MOST`."""
        self._open = [known for known in self._open if known.fileno() != -1]
        for oldest in self._open[: 1 - _MOST]:
            with contextlib.suppress(OSError):  # its thread may just have closed it
                oldest.shutdown(socket.SHUT_RDWR)
        self._open.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print no stack trace for a client that has gone away."""


class _Pages:
    def __init__(self, registry: CollectorRegistry, recent: Recent) -> None:
        self._registry, self._recent = registry, recent

    def page(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """Return status, type and content."""
        if path == "/metrics":
            encode, content_type = choose_encoder(accept)
            return 200, content_type, encode(self._registry)
        if path == "/events":
            return 200, _LINES, self._recent.as_lines()
        return 404, _PLAIN, b"spark-eos: /metrics, /events\n"


class _Handler(BaseHTTPRequestHandler):
    pages: _Pages

    def handle(self) -> None:
        """Handle one request, whose head has to be small and to arrive in time, in however many pieces."""
        until, head = time.monotonic() + _REQUEST_S, b""
        while _END not in head and len(head) <= _LARGEST_REQUEST:
            self.connection.settimeout(max(0.001, until - time.monotonic()))
            piece = self.connection.recv(_LARGEST_REQUEST)
            if not piece:
                return
            head += piece
        self.connection.settimeout(_REQUEST_S)  # of the whole answer
        self.rfile = io.BufferedReader(io.BytesIO(head))
        if _END in head:
            self.handle_one_request()

    def do_GET(self) -> None:
        status, content_type, content = self.pages.page(self.path.partition("?")[0], self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # so named by the class above
        """Log nothing for a scrape."""
