"""Opening a socket to a broker, with TLS and SASL, and requesting the broker's API versions."""

from __future__ import annotations

import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Annotated, Any, Self

from spark_eos.base import system
from spark_eos.base.printable import excerpt
from spark_eos.kafka.codes import OK, Code, name_of
from spark_eos.kafka.config.client import Address, ClientConfig
from spark_eos.kafka.net import sessions
from spark_eos.kafka.net.connection import Connection, check_certificate
from spark_eos.kafka.net.sasl import CertificateRefused, Refused, conversation
from spark_eos.kafka.net.schema import (
    BYTES,
    INT16,
    NO_TAGS,
    STRING,
    Bytes,
    FieldReader,
    Int16,
    Int32,
    Int64,
    NullableString,
    Record,
    Request,
    String,
    Tagged,
    array_of,
    record,
)

#: A broker's id while it is not known.
_NOBODY = -1
#: Least seconds for one of several addresses, as there may be many, far away.
_LEAST_TRY_S = 1.0
#: Seconds of silence before and between probes of an idle connection, as firewalls forget one after some minutes.
_KEEP_ALIVE = [
    (getattr(socket, name), seconds)
    for name, seconds in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 20))
    if hasattr(socket, name)
]
_SASL_HANDSHAKE, _SASL_HANDSHAKE_VERSION = 17, 1
_CODE_BYTES = 2


class ApiVersionRange(Record):
    api_key: Int16
    min_version: Int16
    max_version: Int16


class FinalizedFeature(Record):
    name: String
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(Record):
    error_code: Int16
    api_keys: tuple[ApiVersionRange, ...]
    throttle_time_ms: Int32
    finalized_features: Annotated[tuple[FinalizedFeature, ...] | None, Tagged(2, array_of(FinalizedFeature))]

    @classmethod
    def read(cls, fields: FieldReader) -> Self:
        """Read a response. A broker that is too old for the requested version answers by version 0: then only the error
        counts."""
        code = INT16.read(fields)
        if code != OK:
            return cls(error_code=code, api_keys=(), throttle_time_ms=0, finalized_features=None)
        fields.at -= _CODE_BYTES
        return super().read(fields)


class SaslAuthenticateResponse(Record):
    error_code: Int16
    error_message: NullableString
    auth_bytes: Bytes
    session_lifetime_ms: Int64


_API_VERSIONS = Request(
    "ApiVersions",
    18,
    3,
    3,
    asks=record(client_software_name=STRING, client_software_version=STRING),
    answers=ApiVersionsResponse,
)
_SASL_AUTHENTICATE = Request(
    "SaslAuthenticate",
    36,
    2,
    2,
    asks=record(auth_bytes=BYTES),
    answers=SaslAuthenticateResponse,
)


@dataclass(frozen=True)
class ApiVersions:
    """The first and last version of each request that a broker has, by the request's number, and the cluster's
    finalized features."""

    versions: dict[int, tuple[int, int]]
    features: dict[str, int]


def open_socket(config: ClientConfig, address: Address, timeout_s: float) -> socket.socket:
    """Connect, encrypt and authenticate within ``timeout_s``, beside the time for the name and for a token. Raises
    OSError; `Refused` if retrying will not help.

    The socket still has a timeout; a `Connection` sets its own.
    """
    addresses = _resolve(config, address)
    until = system.monotonic() + timeout_s
    broker = _connect(address, addresses, until)
    try:
        broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in _KEEP_ALIVE:
            broker.setsockopt(socket.IPPROTO_TCP, option, seconds)
        broker.settimeout(_left(until))
        if config.tls is not None:
            broker = _encrypt(broker, config.tls.context(), address[0])
        if config.sasl is not None:
            _authenticate(broker, config, address[0], until)
    except BaseException:
        broker.close()
        raise
    return broker


def api_versions(connection: Connection[None], timeout_s: float) -> ApiVersions:
    """Request the broker's API versions. Raises OSError."""
    body = NO_TAGS + _API_VERSIONS.asks.write({"client_software_name": "spark-eos", "client_software_version": "0"})
    # The response has no tagged fields in its header, so that a client of any version can read it.
    connection.ask(_API_VERSIONS.api, _API_VERSIONS.last, [body], None, flexible=False)
    versions = connection.answer(_API_VERSIONS.answers.read, timeout_s)
    if versions.error_code != OK:
        raise OSError(f"the broker is older than Kafka 2.4 ({name_of(versions.error_code)})")
    return ApiVersions(
        {api.api_key: (api.min_version, api.max_version) for api in versions.api_keys},
        {feature.name: feature.max_version_level for feature in versions.finalized_features or ()},
    )


def _resolve(config: ClientConfig, address: Address) -> list[Any]:
    host, port = address
    try:
        return system.getaddrinfo(host, port, config.family, socket.SOCK_STREAM)
    except ValueError as error:  # no name that DNS can resolve, for example with two dots in a row
        raise OSError(f"{host} cannot be the name of a host: {error}") from None
    except OverflowError:
        raise OSError(f"{host} has no port {port}") from None


def _connect(address: Address, addresses: list[Any], until: float) -> socket.socket:
    """Connect to the first address of the name that answers. The remaining addresses share the remaining time, as one
    may drop packets. Raises the first failure."""
    host, port = address
    failure: OSError | None = None
    for i, (family, kind, protocol, _, resolved) in enumerate(addresses):
        broker: socket.socket | None = None
        try:
            left = _left(until)
            broker = system.socket(family, kind, protocol)
            broker.settimeout(min(left, max(left / (len(addresses) - i), _LEAST_TRY_S)))
            broker.connect(resolved)
            return broker
        except (OSError, OverflowError) as error:  # a broker may advertise a port beyond 65535
            if broker is not None:
                broker.close()
            failure = failure or (error if isinstance(error, OSError) else OSError(f"{host} has no port {port}"))
    raise failure or OSError(f"{host} has no address")


def _encrypt(broker: socket.socket, tls: ssl.SSLContext, host: str) -> socket.socket:
    try:
        return tls.wrap_socket(broker, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise CertificateRefused(f"the broker's certificate is not trusted: {error.verify_message}") from None
    except ssl.SSLError as error:
        check_certificate(error)
        raise OSError(f"TLS handshake failed ({error.reason}): does this port of the broker speak TLS?") from None
    except TimeoutError:
        raise TimeoutError("no answer to a TLS handshake: does this port of the broker speak TLS?") from None
    except (ValueError, TypeError) as error:  # as with a dot in front
        raise OSError(f"{host} cannot be the name of a host: {error}") from None


def _authenticate(broker: socket.socket, config: ClientConfig, host: str, until: float) -> None:
    assert config.sasl is not None
    name = config.sasl.mechanism.encode()
    connection = Connection[None](broker, _NOBODY, config.client_id)
    body = struct.pack(">h", len(name)) + name
    connection.ask(_SASL_HANDSHAKE, _SASL_HANDSHAKE_VERSION, [body], None, flexible=False)
    code = connection.answer(INT16.read, _left(until))
    if code == Code.ILLEGAL_SASL_STATE:
        raise Refused("this port of the broker has no SASL: is kafka.security.protocol right?")
    if code != OK:
        raise Refused(f"the brokers do not offer the SASL mechanism {config.sasl.mechanism} ({name_of(code)})")
    asked = system.monotonic()
    talk = conversation(config.sasl, host)
    auth_bytes, began, lifetime_ms = next(talk, None), system.monotonic(), 0
    until += began - asked  # a token server's time
    while auth_bytes is not None:
        body = _SASL_AUTHENTICATE.asks.write({"auth_bytes": auth_bytes})
        connection.ask(_SASL_AUTHENTICATE.api, _SASL_AUTHENTICATE.last, [body], None)
        answer = connection.answer(_SASL_AUTHENTICATE.answers.read, _left(until))
        if answer.error_code != OK:
            why = excerpt(answer.error_message or "") or name_of(answer.error_code)
            refusal = Refused(f"SASL authentication failed: {why}")
            talk.throw(refusal)
            raise refusal
        lifetime_ms = answer.session_lifetime_ms
        try:
            auth_bytes = talk.send(answer.auth_bytes)
        except StopIteration:
            auth_bytes = None
    sessions.begin(broker, began, lifetime_ms)


def _left(until: float) -> float:
    left = until - system.monotonic()
    if left <= 0:
        raise TimeoutError("the broker does not answer in time")
    return left
