"""A token server (RFC 6749, client credentials) that signs its tokens, and the keys by which brokers check them."""

from __future__ import annotations

import base64
import functools
import json
import math
import time
import urllib.parse
from contextlib import ExitStack
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.servers.http_server import Handler, answering

CLIENT, SECRET = "ann", "hunter2/+%&of-ann"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@functools.cache
def _key() -> rsa.RSAPrivateKey:
    """That of all token servers of this process, as it takes a while to make one."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class TokenServer:
    """Issues tokens to one client; ``life_s``: for how long they are good. ``asked``: the form of each request, and
    ``issued`` the tokens. ``answer``: what the client gets instead. Close it."""

    def __init__(self) -> None:
        self.life_s = 3600.0
        self.answer: bytes | None = None
        self.asked: list[dict[str, str]] = []
        self.issued: list[str] = []
        self._answering = ExitStack()
        port = self._answering.enter_context(answering(type("Tokens", (_Tokens,), {"issuer": self})))
        self.url, self.close = f"http://127.0.0.1:{port}/token", self._answering.close

    def properties(self, secret: str = SECRET) -> dict[str, str]:
        """The client's, by the names of the Java client."""
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.oauthbearer.client.credentials.client.id": CLIENT,
            "sasl.oauthbearer.client.credentials.client.secret": secret,
            "sasl.oauthbearer.scope": "kafka",
        }

    def write_keys(self, file: Path) -> Path:
        """The public key as a set of JSON web keys."""
        numbers = _key().public_key().public_numbers()
        n, e = (_encoded(i.to_bytes((i.bit_length() + 7) // 8, "big")) for i in (numbers.n, numbers.e))
        key = {"kty": "RSA", "kid": "test", "use": "sig", "alg": "RS256", "n": n, "e": e}
        file.write_text(json.dumps({"keys": [key]}))
        return file

    def token(self) -> str:
        now = time.time()
        claims = {"sub": CLIENT, "iss": "test", "aud": "kafka", "scope": "kafka", "iat": int(now)}
        claims["exp"] = math.ceil(now + self.life_s)
        head = {"alg": "RS256", "typ": "JWT", "kid": "test"}
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in (head, claims))
        signature = _key().sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        self.issued.append(f"{signed}.{_encoded(signature)}")
        return self.issued[-1]


class _Tokens(Handler):
    issuer: TokenServer

    def do_POST(self) -> None:
        issuer = self.issuer
        issuer.asked.append(dict(urllib.parse.parse_qsl(self.body().decode())))
        expected = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if self.headers["Authorization"] != expected:
            self.reply_json(401, {"error": "invalid_client"})
        elif issuer.answer is not None:
            self.reply(200, issuer.answer)
        else:
            token = {"access_token": issuer.token(), "token_type": "Bearer", "expires_in": int(issuer.life_s)}
            self.reply_json(200, token)
