"""An Iceberg REST catalog in this process, in front of a catalog on SQLite, which loses, delays and repeats requests as
a test needs it.

It has the routes that pyiceberg's client calls for tables and namespaces. Requirements of commits are checked by
pyiceberg, as the catalog on SQLite does.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, Table

from tests.support.servers.http_server import Handler, answering
from tests.support.tables.table_kinds import Iceberg

#: The status that stands for an error.
_STATUS = {
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
}
_PARTS = "\x1f"
#: What can be asked, as `/v1/config` has it; without it, pyiceberg loads a table to see whether there is one.
_ENDPOINTS = [
    f"{method} /v1/{{prefix}}/namespaces{path}"
    for method, path in (
        ("GET", "/{namespace}"),
        ("POST", ""),
        ("POST", "/{namespace}/tables"),
        ("GET", "/{namespace}/tables/{table}"),
        ("HEAD", "/{namespace}/tables/{table}"),
        ("POST", "/{namespace}/tables/{table}"),
    )
]

Answer = tuple[int, dict[str, Any]]


@dataclass(frozen=True)
class Fault:
    """What becomes of one request.

    ``to``: the kind of the request. ``done``: before it is answered, never, or late, by `CatalogServer.catch_up`.
    ``answer``: a status, with Iceberg's text of an error; ``lost``: the connection is closed; ``hung``: nothing ever
    comes; ``dripping``: a byte now and then; ``garbled``: as from something that is no catalog.
    """

    to: Literal["token", "config", "namespace", "exists", "create", "load", "commit"]
    answer: int | Literal["lost", "hung", "dripping", "garbled"]
    done: Literal["before", "never", "late"] = "never"


@dataclass
class CatalogServer:
    """``faults``: each one befalls the next request of its kind; ``kinds``: of the requests that have come, in their
    order. ``config``: what `/v1/config` has as overrides; ``of_table``: the configuration that comes with a table;
    ``token``: a request without it is refused, if it is set; ``conditions``: whether requirements of commits are kept,
    and not only the order of snapshots; ``packed``: how, and what is made of a body."""

    behind: Callable[[], SqlCatalog]
    config: dict[str, str] = field(default_factory=dict)
    of_table: dict[str, str] = field(default_factory=dict)
    storage_credentials: list[dict[str, Any]] = field(default_factory=list)
    token: str = ""
    conditions: bool = True
    packed: tuple[str, Callable[[bytes], bytes]] | None = None
    faults: list[Fault] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    uri: str = ""

    def __post_init__(self) -> None:
        self._late: list[Callable[[], Answer]] = []
        self._lock = threading.Lock()
        self.closing = threading.Event()
        #: A request has come that gets no whole answer.
        self.silent = threading.Event()
        #: What the server itself has failed with, which a client would take for a fault.
        self.failed: list[BaseException] = []

    def is_read_between_commits(self) -> bool:
        """Whether the table was read anew before each commit after another one."""
        named = [kind for kind in self.kinds if kind in ("load", "commit")]
        return ("commit", "commit") not in pairwise(named)

    def catch_up(self) -> list[int]:
        """Do what was asked for earlier. Returns the statuses that nobody hears of any more."""
        late, self._late = self._late, []
        return [self._done(each)[0] for each in late]

    def answer(self, method: str, path: str, body: bytes, token: str) -> Answer | str:
        """Status and body, or what becomes of the connection instead."""
        parts = [unquote(part) for part in path.removeprefix("/v1/").split("/")]
        kind = _kind(method, parts)
        with self._lock:
            self.kinds.append(kind)
            fault = next((each for each in self.faults if each.to == kind), None)
            if fault is not None:
                self.faults.remove(fault)
        if self.token and kind != "token" and token != f"Bearer {self.token}":
            return 401, _error(401, "NotAuthorizedException")

        def do() -> Answer:
            return self._do(kind, parts, body)

        if fault is None:
            return self._done(do)
        if fault.done == "late":
            self._late.append(do)
        elif fault.done == "before":
            self._done(do)
        return (fault.answer, _error(fault.answer, "Fault")) if isinstance(fault.answer, int) else fault.answer

    def _done(self, do: Callable[[], Answer]) -> Answer:
        with self._lock:
            try:
                return do()
            except tuple(_STATUS) as error:
                status = _STATUS[type(error)]
                return status, _error(status, str(error))

    def _do(self, kind: str, parts: list[str], body: bytes) -> Answer:
        if kind == "token":
            return 200, {"access_token": self.token, "token_type": "bearer"}
        if kind == "config":
            return 200, {"defaults": {}, "overrides": self.config, "endpoints": _ENDPOINTS}
        catalog = self.behind()
        if kind == "namespace":
            namespace = tuple(json.loads(body)["namespace"])
            catalog.create_namespace(namespace)
            return 200, {"namespace": namespace, "properties": {}}
        namespace = tuple(parts[1].split(_PARTS))
        if kind == "create":
            asked = CreateTableRequest.model_validate({"location": None, **json.loads(body)})
            assert asked.partition_spec is not None
            name = (*namespace, asked.name)
            made = catalog.create_table(
                name, asked.table_schema, partition_spec=asked.partition_spec, properties=asked.properties
            )
            return 200, self._table(made)
        table = catalog.load_table((*namespace, parts[3]))
        if kind == "commit":
            commit = CommitTableRequest.model_validate_json(body)
            try:
                done = catalog.commit_table(table, commit.requirements if self.conditions else (), commit.updates)
            except ValueError as error:  # its snapshot is not the next one
                raise CommitFailedException(str(error)) from error
            return 200, json.loads(done.model_dump_json(by_alias=True))
        return (204, {}) if kind == "exists" else (200, self._table(table))

    def _table(self, table: Table) -> dict[str, Any]:
        return {
            "metadata-location": table.metadata_location,
            "metadata": json.loads(table.metadata.model_dump_json(by_alias=True)),
            "config": self.of_table,
            "storage-credentials": self.storage_credentials,
        }


def _kind(method: str, parts: list[str]) -> str:
    kinds = {
        ("GET", 1): "config",
        ("POST", 1): "namespace",
        ("POST", 2): "token",
        ("POST", 3): "create",
        ("GET", 4): "load",
        ("HEAD", 4): "exists",
        ("POST", 4): "commit",
    }
    return kinds[method, len(parts)]


def _error(status: int, text: str) -> dict[str, Any]:
    return {"error": {"message": text, "type": "Error", "code": status}}


class _Asked(Handler):
    protocol_version = "HTTP/1.1"
    catalog: CatalogServer

    def do(self) -> None:
        body = self.body()
        path = self.path.partition("?")[0]
        try:
            found = self.catalog.answer(self.command, path, body, self.headers.get("Authorization", ""))
        except Exception as error:
            self.catalog.failed.append(error)
            raise
        self.close_connection = isinstance(found, str)
        if isinstance(found, tuple):
            self._send(found[0], "application/json", json.dumps(found[1]).encode())
        elif found == "garbled":
            self._send(200, "text/html", b"<html>nothing of a catalog</html>")
        elif found in ("hung", "dripping"):
            self.catalog.silent.set()
            self.catalog.closing.wait() if found == "hung" else self._drip()
        else:
            self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_HEAD = do_POST = do

    def _send(self, status: int, type_: str, body: bytes) -> None:
        headers = {"Content-Type": type_}
        if self.catalog.packed is not None:
            headers["Content-Encoding"], pack = self.catalog.packed
            body = pack(body)
        if self.close_connection:
            headers["Connection"] = "close"
        self.reply(status, b"" if status == 204 else body, headers)

    def _drip(self) -> None:
        """Until the client has gone, or the server is closed."""
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        try:
            while not self.catalog.closing.wait(0.05):
                self.wfile.write(b" ")
        except OSError:
            return


@contextmanager
def serving(catalog: CatalogServer) -> Iterator[CatalogServer]:
    """The catalog, at ``uri`` until the end."""
    with answering(type("Asked", (_Asked,), {"catalog": catalog}), quiet=True) as port:
        catalog.uri = f"http://127.0.0.1:{port}"
        try:
            yield catalog
        finally:
            catalog.closing.set()
    assert not catalog.failed


class RestIceberg(Iceberg):
    """A table whose queries go by the server; what others do to it, and what reads it, goes to the catalog behind."""

    name = "iceberg by REST"

    def __init__(self, folder: Path, properties: dict[str, str] | None = None) -> None:
        super().__init__(folder)
        self.server = CatalogServer(self.opened)
        self._properties = properties or {}

    def sink(self) -> dict[str, Any]:
        properties = {"type": "rest", "uri": self.server.uri, **self._properties}
        named = {f"catalog.{name}": value for name, value in properties.items()}
        return {"format": "iceberg", "table": self.table, **named}
