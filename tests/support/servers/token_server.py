"""A token server (RFC 6749, client credentials) that signs its tokens, and the keys by which brokers check them."""

from __future__ import annotations

import base64
import json
import math
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, SECRET = "ann", "hunter2/+%&of-ann"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class TokenServer:
    """Issues tokens to one client; ``life_s``: for how long they are good. ``asked``: the form of each request, and
    ``issued`` the tokens. Close it."""

    def __init__(self, life_s: float = 3600.0) -> None:
        self.life_s = life_s
        self.asked: list[dict[str, str]] = []
        self.issued: list[str] = []
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

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
        numbers = self._key.public_key().public_numbers()
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
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        self.issued.append(f"{signed}.{_encoded(signature)}")
        return self.issued[-1]


def _handler(server: TokenServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            server.asked.append(dict(urllib.parse.parse_qsl(form)))
            expected = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
            known = self.headers["Authorization"] == expected
            answer: dict[str, Any] = {"error": "invalid_client"}
            if known:
                answer = {"access_token": server.token(), "token_type": "Bearer", "expires_in": int(server.life_s)}
            body = json.dumps(answer).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
