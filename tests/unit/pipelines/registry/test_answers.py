"""Answers of a registry, and of a server of tokens, that would fill the memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib

import pytest

from spark_eos.pipelines.registry.answers import MOST_BYTES
from spark_eos.pipelines.registry.client import Registry
from spark_eos.pipelines.registry.settings import registry_settings
from tests.support.judges.conditions import raises
from tests.support.servers.http_server import Handler, answering

SCHEMA = {"schema": '"string"'}
LARGE = b'{"schema": "' + bytes(64 << 20)
TOKEN = {"access_token": "t", "token_type": "Bearer", "expires_in": 3600}


def server(body: bytes, encoding: str | None, token: bytes | None = None, *, endless: bool = False):
    """Answers every GET with the body, and every POST, for a token, with the token. ``endless``: the body again and
    again, for as long as anybody reads."""

    class Answers(Handler):
        def do_GET(self) -> None:
            self._answer(body)
            while endless:
                self.wfile.write(body)

        def do_POST(self) -> None:
            if token is None:
                self.reply_json(200, TOKEN)
            else:
                self._answer(token)

        def _answer(self, data: bytes) -> None:
            length = 1 << 40 if endless else len(data)
            packed = {} if encoding is None else {"Content-Encoding": encoding}
            self.reply(200, data, {"Content-Type": "application/json", "Content-Length": str(length)} | packed)

    return answering(Answers, quiet=True)


def ask(port: int, **more: str) -> str:
    """The schema's text. Holds the memory that is taken to a few times of what an answer may have."""
    registry = Registry(registry_settings({"url": f"http://127.0.0.1:{port}", **more}))
    tracemalloc.start()
    try:
        return registry.schema(7).text
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 6 * MOST_BYTES


@pytest.mark.parametrize(
    ("body", "packed_by", "encoding", "endless", "reason"),
    [
        (LARGE, [gzip.compress], "gzip", False, "8 MiB"),
        (LARGE, [gzip.compress, gzip.compress], "gzip, gzip", False, "packed as 'gzip, gzip'"),
        (LARGE, [zlib.compress], "deflate", False, "packed as 'deflate'"),
        (bytes(1 << 16), [], None, True, "8 MiB"),
        (gzip.compress(json.dumps(SCHEMA).encode())[:-9], [], "gzip", False, "too early"),
        (b"{}", [gzip.compress], None, False, ""),
        (b"{}", [], "gzip", False, "header"),
    ],
    ids=["gzip", "twice", "deflate", "endless", "cut", "packed in secret", "not packed"],
)
def test_an_answer_that_is_too_large_when_it_is_unpacked_is_refused(body, packed_by, encoding, endless, reason):
    """Before it is unpacked, however it is packed and however long it is."""
    for pack in packed_by:
        body = pack(body)
    with server(body, encoding, endless=endless) as port, raises("EOS_REGISTRY_ANSWER", reason):
        ask(port)


def test_a_token_that_is_too_large_is_refused():
    """It comes from a server of its own."""
    more = {"bearer.auth.credentials.source": "OAUTHBEARER", "bearer.auth.client.id": "me", "bearer.auth.scope": "all"}
    more |= {"bearer.auth.client.secret": "secret"}
    body = json.dumps(SCHEMA).encode()
    with server(body, None) as port:
        assert ask(port, **more, **{"bearer.auth.issuer.endpoint.url": f"http://127.0.0.1:{port}/token"}) == '"string"'
    large = server(gzip.compress(body), "gzip", gzip.compress(LARGE))
    with large as port, raises("EOS_REGISTRY_UNAUTHORIZED", "8 MiB"):
        ask(port, **more, **{"bearer.auth.issuer.endpoint.url": f"http://127.0.0.1:{port}/token"})


@pytest.mark.parametrize(
    ("pack", "encoding"), [(gzip.compress, "gzip"), (bytes, None), (bytes, "identity"), (gzip.compress, "GZIP")]
)
def test_other_answers_are_read_as_before(pack, encoding):
    """Packed and not."""
    with server(pack(json.dumps(SCHEMA).encode()), encoding) as port:
        assert ask(port) == '"string"'
