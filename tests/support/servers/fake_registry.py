"""A schema registry in this process, which learns, forgets, is away and is made anew at the moment that a test needs.

It has Confluent's answers about ids and versions, and nothing else. What a real registry can be made to do is tested
with a real one (`tests.support.servers.schema_registry`).
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from spark_eos.tools.devcluster.ports import free_ports
from tests.support.servers.http_server import Handler, answering
from tests.support.waiting import wait_for

_ID, _VERSION = re.compile(r"/schemas/ids/(\d+)"), re.compile(r"/subjects/([^/]+)/versions/(\w+)")
_VERSIONS = re.compile(r"/subjects/([^/]+)/versions")


class FakeRegistry:
    """``schemas``: the texts of JSON Schemas, by id; ``versions``: the id of each subject's one version; ``late``: how
    many questions about an id, behind the first ``prompt`` ones, are answered as if it were unknown, each when the next
    one has come, so that no task is done before another one asks; ``asked``: how often each id was asked for; ``more``:
    what else is in each answer, or instead of what would be there; ``refused``: the status and Confluent's code for
    ids that are not shown, ``refused_all``: of every question; ``deleted``: subjects that only a question for deleted
    ones finds; ``references``: by a schema's id."""

    def __init__(self, schemas: dict[int, str], versions: dict[str, int]) -> None:
        self.schemas, self.versions = dict(schemas), dict(versions)
        self.late: Counter[int] = Counter()
        self.prompt: Counter[int] = Counter()
        self.asked: Counter[int] = Counter()
        self.more: dict[str, object] = {}
        self.refused: dict[int, tuple[int, int]] = {}
        self.refused_all: tuple[int, int] | None = None
        self.deleted: set[str] = set()
        self.references: dict[int, list[dict[str, object]]] = {}
        self._lock = threading.Lock()
        (self._port,) = free_ports(1)  # none that a connection gets while nobody listens there
        self._answering = ExitStack()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def open(self) -> None:
        """Answer, at the same address as before."""
        handler = type("Answers", (_Answers,), {"registry": self})
        self._answering.enter_context(answering(handler, port=self._port))

    def close(self) -> None:
        """Be away: nobody listens at the address."""
        self._answering.close()

    @contextmanager
    def away(self) -> Iterator[None]:
        """For the time of the block."""
        self.close()
        try:
            yield
        finally:
            self.open()

    @contextmanager
    def anew(self, schemas: dict[int, str]) -> Iterator[None]:
        """Made anew for the time of the block, with other schemas."""
        before = self.schemas, self.versions
        self.schemas, self.versions = schemas, {}
        try:
            yield
        finally:
            self.schemas, self.versions = before

    def answer(self, path: str, query: str = "") -> tuple[int, object]:
        """Status and body."""
        if self.refused_all is not None:
            status, code = self.refused_all
            return status, {"error_code": code, "message": "every question is refused"}
        if (found := _ID.fullmatch(path)) and int(found[1]) < 1 << 31:
            return self._by_id(int(found[1]))
        if found := _VERSIONS.fullmatch(path):
            return 200, [1] if found[1] in self.versions else []
        if found := _VERSION.fullmatch(path):
            id_ = self.versions.get(found[1])
            if id_ is None or (found[1] in self.deleted and "deleted=true" not in query.lower()):
                return 404, {"error_code": 40401, "message": "Subject not found"}
            return 200, {"subject": found[1], "version": 1, "id": id_} | self._schema(id_)
        return 404, {}

    def _by_id(self, id_: int) -> tuple[int, dict[str, object]]:
        with self._lock:
            self.asked[id_] += 1
            number = self.asked[id_]
            late = number > self.prompt[id_] and self.late[id_] > 0
            self.late[id_] -= late
        if late:
            wait_for(lambda: self.asked[id_] > number, f"the next question about schema {id_}")
        if id_ in self.refused:
            status, code = self.refused[id_]
            return status, {"error_code": code, "message": "User is denied operation Read on Subject"}
        if late or id_ not in self.schemas:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, self._schema(id_)

    def _schema(self, id_: int) -> dict[str, object]:
        references = self.references.get(id_, [])
        return {"schema": self.schemas[id_], "schemaType": "JSON", "references": references, **self.more}


class _Answers(Handler):
    registry: FakeRegistry

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.reply_json(*self.registry.answer(path, query))

    def do_POST(self) -> None:
        """Of what is registered: the only version of the subject has this schema."""
        self.body()
        self.path = self.path.partition("?")[0].removesuffix("/versions") + "/versions/1"
        self.do_GET()


@contextmanager
def fake_registry(schemas: dict[int, str], versions: dict[str, int]) -> Iterator[FakeRegistry]:
    """One that answers until the end of the block."""
    registry = FakeRegistry(schemas, versions)
    registry.open()
    try:
        yield registry
    finally:
        registry.close()
