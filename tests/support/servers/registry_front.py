"""A server before a schema registry: demands credentials, refuses, is silent, gives GUIDs, and notes its requests."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tests.support.servers.http_server import Handler, answering
from tests.support.waiting import TIMEOUT, wait_for

#: GUIDs are made of this one and a schema's id.
_NAMES = uuid.UUID("89791762-2336-4186-9674-299b90a802e2")
_GUIDS = "/schemas/guids/"
#: Where it gives out tokens, and the token.
TOKEN_PATH, TOKEN = "/token", "a-token-of-the-front"


@dataclass
class Front:
    """``authorization``: what requests have to bring; ``status``: what each is answered instead; ``silent``: set while
    nothing is answered; ``unknown``: how many more requests for a path are told that its schema is unknown, each when
    the next one has come, so that no task is done before another one asks; ``requests``: methods and paths so far."""

    behind: str
    url: str = ""
    authorization: str | None = None
    status: int | None = None
    silent: bool = False
    unknown: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    requests: list[str] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> tuple[int, bytes]:
        """The status and the body."""
        self.requests.append(f"{method} {path}")
        if self.silent:
            self.closed.wait()
        if path == TOKEN_PATH and self.status is None:
            token = {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600}
            return 200, json.dumps(token).encode()
        if self.authorization is not None and headers.get("Authorization") != self.authorization:
            # Some servers repeat what they were sent.
            return 401, json.dumps({"error_code": 401, "message": str(headers)}).encode()
        if self.status is not None:
            return self.status, json.dumps({"error_code": self.status, "message": "no"}).encode()
        place = path.partition("?")[0]
        with self.lock:
            self.asked[place] += 1
            asked, unknown = self.asked[place], self.unknown[place] > 0
            self.unknown[place] -= unknown
        if unknown:
            wait_for(lambda: self.asked[place] > asked, f"the next request for {place}")
            return 404, json.dumps({"error_code": 40403, "message": "Schema not found"}).encode()
        if path.startswith(_GUIDS):
            path = f"/schemas/ids/{self._id_of(path.removeprefix(_GUIDS).partition('?')[0])}"
        kept = {name: value for name, value in headers.items() if name.lower() == "content-type"}
        request = Request(self.behind + path, body, kept, method=method)
        try:
            with urlopen(request, timeout=TIMEOUT) as answer:
                return answer.status, _with_guid(answer.read())
        except HTTPError as error:
            return error.code, error.read()
        except URLError:
            return 502, b"{}"

    @staticmethod
    def _id_of(guid: str) -> int:
        return next(id_ for id_ in range(10_000) if guid_of(id_) == guid)


def guid_of(id_: int) -> str:
    """The GUID of the schema with this id."""
    return str(uuid.uuid5(_NAMES, str(id_)))


def _with_guid(body: bytes) -> bytes:
    answer = json.loads(body)
    if isinstance(answer, dict) and "id" in answer:
        answer["guid"] = guid_of(answer["id"])
    return json.dumps(answer).encode()


@contextlib.contextmanager
def front(behind: str, tls: ssl.SSLContext | None = None) -> Iterator[Front]:
    """A server before the registry at this address; by TLS where that is given."""
    ours = Front(behind)

    class Before(Handler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            status, body = ours.answer(self.command, self.path, dict(self.headers), self.body() or None)
            with contextlib.suppress(OSError):  # who asked may be gone
                self.reply(status, body, {"Content-Type": "application/json"})

        do_GET = do_POST = do_PUT = do_DELETE = _serve

    with answering(Before, tls=tls) as port:
        ours.url = f"http{'' if tls is None else 's'}://127.0.0.1:{port}"
        try:
            yield ours
        finally:
            ours.closed.set()
