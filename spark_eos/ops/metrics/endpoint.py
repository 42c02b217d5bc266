"""The HTTP endpoint: ``/metrics`` for Prometheus, ``/events`` for `spark-eos top` and `spark-eos plot`."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from spark_eos.ops.metrics.recording import Recent

_PLAIN, _LINES = "text/plain; charset=utf-8", "application/x-ndjson"
_SILENT_S = 10.0
_CLOSE_S = 0.1


class Endpoint:
    """Listens until it is closed; port 0 is a free one. Raises OSError where the port is taken."""

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
    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever asked has gone away: no stack for that."""


class _Pages:
    def __init__(self, registry: CollectorRegistry, recent: Recent) -> None:
        self._registry, self._recent = registry, recent

    def page(self, path: str, accept: str) -> tuple[int, str, bytes]:
        """Status, type and content."""
        if path == "/metrics":
            encode, content_type = choose_encoder(accept)
            return 200, content_type, encode(self._registry)
        if path == "/events":
            return 200, _LINES, self._recent.as_lines()
        return 404, _PLAIN, b"spark-eos: /metrics, /events\n"


class _Handler(BaseHTTPRequestHandler):
    pages: _Pages
    timeout = _SILENT_S

    def do_GET(self) -> None:
        status, content_type, content = self.pages.page(self.path.partition("?")[0], self.headers.get("Accept", ""))
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # so named by the class above
        """Not a line for each scrape."""
