"""SASL mechanisms: what a client says, given what the broker says. No I/O but for tokens, which a server may issue.

A mechanism is a generator: it yields what is to be sent and gets what the broker answered; it ends when all is said.
It raises `Refused` where the broker cannot be trusted or a token cannot be had for good.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Generator, Mapping

from spark_eos.kafka.config.handshake import Sasl

Conversation = Generator[bytes, bytes, None]

_TOKEN_TIMEOUT_S = 10.0
#: Of a token's life, after which a new one is asked for.
_FRESH_SHARE = 0.8
#: Fewer iterations make a stolen exchange too easy to search (RFC 7677).
_FEWEST_ITERATIONS = 4096
#: GSSAPI: no security layer, as Kafka has none.
_NO_LAYER = b"\x01\x00\x00\x00"


class Refused(OSError):
    """This user is not let in, and will not be by asking again."""


def conversation(sasl: Sasl, host: str) -> Conversation:
    """What to say to a broker of this host name."""
    if sasl.mechanism == "PLAIN":
        return _plain(sasl)
    if sasl.mechanism == "OAUTHBEARER":
        return _oauthbearer(sasl.oauthbearer)
    if sasl.mechanism == "GSSAPI":
        return _gssapi(sasl.service, host)
    return _scram(sasl)


def _plain(sasl: Sasl) -> Conversation:
    yield f"\0{sasl.username}\0{sasl.password}".encode()


def _scram(sasl: Sasl) -> Conversation:
    """RFC 5802, without channel binding."""
    algorithm = "sha256" if sasl.mechanism == "SCRAM-SHA-256" else "sha512"
    nonce = secrets.token_urlsafe(24)
    user = sasl.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={user},r={nonce}"
    server_first = (yield f"n,,{first}".encode()).decode()
    said = _attributes(server_first)
    salt, iterations = base64.b64decode(said.get("s", "")), int(said.get("i", "0"))
    if not said.get("r", "").startswith(nonce) or said["r"] == nonce or not salt or iterations < _FEWEST_ITERATIONS:
        raise Refused("the broker's SCRAM challenge is not one to this client")
    salted = hashlib.pbkdf2_hmac(algorithm, sasl.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    final = f"c=biws,r={said['r']}"
    exchange = f"{first},{server_first},{final}".encode()
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), exchange, algorithm)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    server_final = _attributes((yield f"{final},p={proof}".encode()).decode())
    if "e" in server_final:
        raise Refused(f"SASL authentication failed: {server_final['e']}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), exchange, algorithm)
    if not hmac.compare_digest(base64.b64decode(server_final.get("v", "")), expected):
        raise Refused("the broker does not know this user's password, though it says so: it is not to be trusted")


def _attributes(message: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in message.split(","))


def _oauthbearer(settings: Mapping[str, str]) -> Conversation:
    """RFC 7628. A broker that refuses the token says why, as JSON, and waits for one byte."""
    extensions = "".join(f"{part.strip()}\x01" for part in settings.get("sasl.oauthbearer.extensions", "").split(","))
    answer = yield f"n,,\x01auth=Bearer {_token(settings)}\x01{extensions.lstrip(chr(1))}\x01".encode()
    if answer:
        yield b"\x01"
        raise Refused(f"SASL authentication failed: {answer.decode(errors='replace')}")


_tokens: dict[frozenset[tuple[str, str]], tuple[str, float]] = {}
_tokens_lock = threading.Lock()


def _token(settings: Mapping[str, str]) -> str:
    """A token that is good for some time yet; it is kept for the next connection."""
    key = frozenset(settings.items())
    with _tokens_lock:
        token, until = _tokens.get(key, ("", 0.0))
        if time.monotonic() >= until:
            unsecured = settings.get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() == "true"
            token, life_s = _unsecured_token(settings) if unsecured else _issued_token(settings)
            _tokens[key] = token, time.monotonic() + life_s * _FRESH_SHARE
        return token


def _unsecured_token(settings: Mapping[str, str]) -> tuple[str, float]:
    """An unsigned JSON web token, for brokers of a test, from ``sasl.oauthbearer.config`` as librdkafka reads it."""
    given = dict(part.partition("=")[::2] for part in settings.get("sasl.oauthbearer.config", "").split())
    life_s = int(given.get("lifeSeconds", "3600"))
    now = time.time()
    claims: dict[str, object] = {
        given.get("principalClaimName", "sub"): given.get("principal", ""),
        "iat": now,
        "exp": now + life_s,
    }
    if "scope" in given:
        claims[given.get("scopeClaimName", "scope")] = given["scope"].split(",")
    parts = [json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + ".", life_s


def _issued_token(settings: Mapping[str, str]) -> tuple[str, float]:
    """Client credentials (RFC 6749, 4.4) at ``sasl.oauthbearer.token.endpoint.url``."""
    url = settings.get("sasl.oauthbearer.token.endpoint.url", "")
    name, secret = (settings.get(f"sasl.oauthbearer.client.{what}", "") for what in ("id", "secret"))
    form = {"grant_type": "client_credentials"}
    if settings.get("sasl.oauthbearer.scope"):
        form["scope"] = settings["sasl.oauthbearer.scope"]
    credentials = base64.b64encode(f"{urllib.parse.quote(name)}:{urllib.parse.quote(secret)}".encode()).decode()
    try:
        request = urllib.request.Request(
            url, urllib.parse.urlencode(form).encode(), {"Authorization": f"Basic {credentials}"}
        )
        with urllib.request.urlopen(request, timeout=_TOKEN_TIMEOUT_S) as answer:
            said = json.load(answer)
        return str(said["access_token"]), float(said.get("expires_in", 300))
    except urllib.error.HTTPError as error:
        raise Refused(f"{url} issues no token: {error.code} {error.reason}") from None
    except (OSError, ValueError, KeyError) as error:
        raise OSError(f"no token from {url}: {error}") from None


def _gssapi(service: str, host: str) -> Conversation:
    """RFC 4752, by the package gssapi and the credentials that it finds."""
    try:
        import gssapi
    except ImportError:
        raise Refused("GSSAPI needs the package gssapi, which is not installed here") from None
    name = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
    context = gssapi.SecurityContext(name=name, usage="initiate")
    answer: bytes | None = None
    while not context.complete:
        answer = yield context.step(answer) or b""
    offered = context.unwrap(answer if answer else (yield b"")).message
    if not offered or not offered[0] & 1:
        raise Refused("the broker asks for a security layer, which Kafka has not")
    yield context.wrap(_NO_LAYER, False).message
