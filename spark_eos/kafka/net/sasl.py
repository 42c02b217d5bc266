"""SASL mechanisms, as generators without I/O; only tokens may be requested from a server.

A mechanism yields the bytes to send and receives the broker's response; it returns when the exchange is complete. It
raises `Refused` if the broker cannot be trusted, or if it gets no token and retrying will not help. If the broker
rejects the client, the caller throws this error into the generator.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib
import re
import secrets
from collections.abc import Generator, Mapping
from types import ModuleType

from spark_eos.base.printable import excerpt
from spark_eos.kafka.config.client import Kerberos, Sasl
from spark_eos.kafka.config.tokens import TokenRefused, extensions, forget, token

Conversation = Generator[bytes, bytes, None]

#: Fewer iterations make a stolen exchange too easy to search (RFC 7677).
_FEWEST_ITERATIONS = 4096
#: More keep a client busy for seconds, before the server has proved who it is. Kafka's own tool sets 16384 at the most.
_MOST_ITERATIONS = 1_000_000
_CHALLENGE = re.compile(
    rb"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]{1,512}),s=(?P<salt>[A-Za-z0-9+/=]{1,1024}),i=(?P<iterations>[1-9][0-9]{0,9})"
    rb"(?:,[^m][\x20-\x7e]*)?"
)
#: GSSAPI: no security layer, as Kafka has none.
_NO_LAYER = b"\x01\x00\x00\x00"
#: Minor codes of MIT Kerberos, which may be signed: no server of the realm answers, or its name cannot be resolved.
_LOW = 0xFFFFFFFF
_ASK_AGAIN = {-1765328228 & _LOW, -1765328230 & _LOW}


class Refused(OSError):
    """Authentication failed, and retrying will not help."""


class CertificateRefused(Refused):
    """Client and broker do not trust each other's certificates."""


def conversation(sasl: Sasl, host: str) -> Conversation:
    """Return the generator for this mechanism and a broker of this host name."""
    if sasl.mechanism == "PLAIN":
        return _plain(sasl)
    if sasl.mechanism == "OAUTHBEARER":
        return _oauthbearer(sasl.oauthbearer)
    if sasl.mechanism == "GSSAPI":
        return _gssapi(sasl.kerberos, host)
    return _scram(sasl)


def _plain(sasl: Sasl) -> Conversation:
    yield f"\0{sasl.username}\0{sasl.password}".encode()


def _scram(sasl: Sasl) -> Conversation:
    """Authenticate by SCRAM (RFC 5802), without channel binding."""
    algorithm = "sha256" if sasl.mechanism == "SCRAM-SHA-256" else "sha512"
    nonce = secrets.token_urlsafe(24)
    user = sasl.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={user},r={nonce}"
    server_first = yield f"n,,{first}".encode()
    both, salt, iterations = _challenge(server_first, nonce)
    salted = hashlib.pbkdf2_hmac(algorithm, sasl.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    final = f"c=biws,r={both}"
    exchange = b",".join([first.encode(), server_first, final.encode()])
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), exchange, algorithm)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    server_final = yield f"{final},p={proof}".encode()
    if server_final.startswith(b"e="):
        raise Refused(f"SASL authentication failed: {excerpt(server_final[2:])}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), exchange, algorithm)
    if not hmac.compare_digest(server_final.partition(b",")[0], b"v=" + base64.b64encode(expected)):
        raise Refused("the broker does not know this user's password, though it says so: it is not to be trusted")


def _challenge(message: bytes, nonce: str) -> tuple[str, bytes, int]:
    """Return the combined nonce, salt and iterations of a server's first message. Raises `Refused` if it is not an
    answer to this client, has an unreasonable number of iterations, or a mandatory extension (``m=``)."""
    match = _CHALLENGE.fullmatch(message)
    both = match["nonce"].decode() if match else ""
    try:
        salt = base64.b64decode(match["salt"], validate=True) if match else b""
    except ValueError:
        salt = b""
    if match is None or not both.startswith(nonce) or both == nonce or not salt:
        raise Refused("the broker's SCRAM challenge is not one to this client")
    iterations = int(match["iterations"])
    if not _FEWEST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
        raise Refused(
            f"the broker asks for {iterations} iterations of SCRAM; {_FEWEST_ITERATIONS} to {_MOST_ITERATIONS} are done"
        )
    return both, salt, iterations


def _oauthbearer(settings: Mapping[str, str]) -> Conversation:
    """Authenticate by OAUTHBEARER (RFC 7628). A broker that rejects the token sends the reason, as JSON, and waits for
    one byte."""
    try:
        bearer = token(settings)
    except TokenRefused as error:
        raise Refused(str(error)) from None
    pairs = "".join(f"{name}={value}\x01" for name, value in extensions(settings).items())
    try:
        answer = yield f"n,,\x01auth=Bearer {bearer.value}\x01{pairs}\x01".encode()
    except Refused:  # by the broker, without a reason in the answer
        forget(settings, bearer)
        raise
    if answer:
        forget(settings, bearer)
        yield b"\x01"
        raise Refused(f"SASL authentication failed: {excerpt(answer)}")


def _gssapi(kerberos: Kerberos, host: str) -> Conversation:
    """Authenticate by GSSAPI (RFC 4752), by the package gssapi."""
    gssapi = importlib.import_module("gssapi")
    try:
        yield from _kerberos(gssapi, kerberos, host)
    except gssapi.exceptions.GSSError as error:
        if error.min_code & _LOW in _ASK_AGAIN:
            raise OSError(f"Kerberos: {error}") from None
        raise Refused(
            f"Kerberos: {error}; kinit, or kafka.sasl.kerberos.keytab and .principal, give a ticket"
        ) from None


def _kerberos(gssapi: ModuleType, kerberos: Kerberos, host: str) -> Conversation:
    name = gssapi.Name(f"{kerberos.service}@{host}", gssapi.NameType.hostbased_service)
    context = gssapi.SecurityContext(name=name, creds=_credentials(gssapi, kerberos), usage="initiate")
    answer: bytes | None = None
    while not context.complete:
        answer = yield context.step(answer) or b""
    offered = context.unwrap(answer if answer else (yield b"")).message
    if not offered or not offered[0] & 1:
        raise Refused("the broker asks for a security layer, which Kafka has not")
    yield context.wrap(_NO_LAYER, False).message


def _credentials(gssapi: ModuleType, kerberos: Kerberos) -> object:
    """Return the credentials of the keytab, for which Kerberos requests and renews tickets; else the process's own."""
    if not kerberos.keytab:
        return None
    cache = hashlib.sha256(f"{kerberos.principal} {kerberos.keytab}".encode()).hexdigest()[:16]
    name = gssapi.Name(kerberos.principal, gssapi.NameType.kerberos_principal) if kerberos.principal else None
    store = {"client_keytab": f"FILE:{kerberos.keytab}", "ccache": f"MEMORY:spark-eos-{cache}"}
    return gssapi.Credentials(name=name, usage="initiate", store=store)
