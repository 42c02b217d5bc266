"""Credentials that expire: an Iceberg table by a REST catalog that hands out new ones whenever the table is loaded, and
before its store a gate that lets no others pass."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from tests.support.servers.http_server import Handler, answering
from tests.support.servers.object_store import ACCESS_KEY, SECRET_KEY, ObjectStore, object_store
from tests.support.servers.rest_catalog import CatalogServer, RestIceberg, serving

_EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
#: What each session token begins with.
TOKEN = "swordfish"
#: Headers that belong to a connection, not to a request.
_OF_CONNECTION = {"connection", "content-length", "expect", "keep-alive", "server", "transfer-encoding"}


@dataclass
class Gate:
    """``store``: host and port behind; ``valid``: the token that passes. ``refused``: the tokens that did not."""

    store: str
    valid: str = ""
    address: str = ""
    refused: list[str] = field(default_factory=list)


class Expiring(RestIceberg):
    """``store``: where its files are. What reads it for the tests needs no token."""

    def __init__(self, folder: Path, store: ObjectStore, gate: Gate) -> None:
        super().__init__(folder)
        self.keys = {"s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY, "s3.region": "us-east-1"}
        self.store, self.gate, self._numbers = store, gate, count()
        self.server = _HandingOut(self.opened, self)

    @property
    def catalog(self) -> dict[str, str]:
        there = {"s3.endpoint": f"http://{self.store.address}", "warehouse": f"s3://{self.store.bucket}/warehouse"}
        return super().catalog | self.keys | there

    def expire(self) -> None:
        """End all credentials that were handed out."""
        self.gate.valid = f"{TOKEN} {next(self._numbers)}"


class _HandingOut(CatalogServer):
    def __init__(self, behind: Any, kind: Expiring) -> None:
        super().__init__(behind)
        self._kind = kind

    def _table(self, table: Table) -> dict[str, Any]:
        self._kind.expire()
        gate = self._kind.gate
        self.of_table = self._kind.keys | {"s3.endpoint": f"http://{gate.address}", "s3.session-token": gate.valid}
        return super()._table(table)


@contextlib.contextmanager
def expiring_credentials(folder: Path) -> Iterator[Expiring]:
    """A table that is not there yet."""
    with object_store(folder) as store, _gate(store.address) as gate:
        kind = Expiring(folder / "lake", store, gate)
        with serving(kind.server):
            yield kind


@contextlib.contextmanager
def _gate(store: str) -> Iterator[Gate]:
    """On a free port of the loopback, at ``address`` until the end."""
    found = Gate(store)
    with answering(type("AtGate", (_AtGate,), {"gate": found})) as port:
        found.address = f"127.0.0.1:{port}"
        yield found


class _AtGate(Handler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    gate: Gate

    def do(self) -> None:
        body = self.body()
        token = self.headers.get("x-amz-security-token", "")
        if token != self.gate.valid:
            self.gate.refused.append(token)
            self.reply(400, _EXPIRED, {"Content-Type": "application/xml"})
            return
        behind = HTTPConnection(self.gate.store)
        try:
            asked = {name: value for name, value in self.headers.items() if name.lower() not in _OF_CONNECTION}
            behind.request(self.command, self.path, body, asked)
            answer = behind.getresponse()
            kept = {name: value for name, value in answer.getheaders() if name.lower() not in _OF_CONNECTION}
            if self.command == "HEAD":
                kept["Content-Length"] = answer.getheader("Content-Length") or "0"
            self.reply(answer.status, answer.read(), kept)
        finally:
            behind.close()

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do

    def body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return super().body()
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body
