"""A real schema registry on this machine: Apicurio's, which answers Confluent's API."""

from __future__ import annotations

import contextlib
import json
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from spark_eos.tools.devcluster.broker import Broker
from spark_eos.tools.devcluster.cache import digest, stored
from spark_eos.tools.devcluster.jars import JarSet, download
from spark_eos.tools.devcluster.java import find_java
from spark_eos.tools.devcluster.ports import free_ports
from tests.support.waiting import wait_for

#: The newest that runs on Java 17.
_VERSION = "2.6.13.Final"
_ARCHIVE = JarSet(
    f"apicurio-registry-{_VERSION}", archives=(f"io.apicurio:apicurio-registry-app:{_VERSION}:all:tar.gz",)
)
_START_S = 180.0
_FLAGS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_JSON = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True)
class SchemaRegistry:
    """``url``: of Confluent's API. ``process``: to stop it and to start it again, which empties it."""

    url: str
    process: Broker

    def start(self) -> None:
        """Returns when it answers."""
        self.process.launch()
        wait_for(self._is_up, lambda: f"the registry:\n{self.process.log_tail(60)}", _START_S)

    def register(
        self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """The id of a version of the subject, by the registry's own API."""
        body = {"schema": schema, "schemaType": kind, "references": references or []}
        found: int = self.call("POST", f"subjects/{subject}/versions", body)["id"]
        return found

    def call(self, method: str, path: str, body: object = None) -> Any:  # JSON
        """The answer to a request. Raises HTTPError."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}/{path}", data, {"Content-Type": _JSON}, method=method)
        with urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def _is_up(self) -> bool:
        assert self.process.running, self.process.log_tail(60)
        try:
            return isinstance(self.call("GET", "subjects"), list)
        except HTTPError:
            return False  # the port is open before the API is there
        except (URLError, OSError):
            return False


@contextlib.contextmanager
def schema_registry(folder: Path) -> Iterator[SchemaRegistry]:
    """A registry that is empty, and gone at the end, or with the process of the tests."""
    jar = next(file for file in _files() if file.name.endswith("-runner.jar"))
    (port,) = free_ports(1)
    # Nothing but loopback, and no database but one in its memory.
    settings = ("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", "-Dquarkus.log.level=WARN")
    command = [find_java().path, *_FLAGS, *settings, "-jar", str(jar)]
    registry = SchemaRegistry(f"http://127.0.0.1:{port}/apis/ccompat/v7", Broker(0, port, folder, command, True))
    try:
        registry.start()
        yield registry
    finally:
        registry.process.kill()


def _files() -> list[Path]:
    """The registry's files, fetched once on a machine."""
    return stored(f"{_ARCHIVE.name}-{digest(_ARCHIVE.archives)}", _unpacked)


def _unpacked(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="spark-eos-registry-") as work:
        download(_ARCHIVE, Path(work))
        (archive,) = Path(work).iterdir()
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
