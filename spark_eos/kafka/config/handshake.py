"""The properties that our own connections follow: addresses, TLS and SASL."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_eos.errors import OptionError
from spark_eos.kafka.config.java_names import canonical, unsupported
from spark_eos.kafka.config.librdkafka import load_certificate
from spark_eos.kafka.config.properties import KafkaProperties

_SILENCE_S = 30.0
_DEFAULT_PORT = 9092
_FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}
#: ``host``, ``host:port``, ``[v6 address]:port``, each with or without ``PROTOCOL://`` before it.
_SERVER = re.compile(r"(?:\w+://)?(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:/\[\]]+))(?::(?P<port>\d+))?")

Address = tuple[str, int]


@dataclass(frozen=True)
class Sasl:
    """``mechanism`` in capitals; of the rest, what it needs. Secrets do not print."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    service: str = "kafka"
    oauthbearer: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Handshake:
    """How to connect to the brokers of a cluster."""

    servers: tuple[Address, ...]
    client_id: str
    family: int
    tls: ssl.SSLContext | None
    sasl: Sasl | None


def silence_seconds(properties: KafkaProperties) -> float:
    """For how long a broker that has been asked may be silent, by our own sockets."""
    return min(_SILENCE_S, int(canonical(properties).get("socket.timeout.ms", 60_000)) / 1000)


def client_id(properties: KafkaProperties) -> str:
    return canonical(properties).get("client.id", "spark-eos")


def handshake(kafka: KafkaProperties) -> Handshake:
    """Raises OptionError for a mechanism that is not spoken here, an address or a certificate that cannot be read."""
    user = canonical(kafka)
    protocol = user.get("security.protocol", "PLAINTEXT").upper()
    return Handshake(
        servers=tuple(_address(server.strip()) for server in kafka.bootstrap_servers.split(",") if server.strip()),
        client_id=client_id(kafka),
        family=_FAMILIES.get(user.get("broker.address.family", "any"), socket.AF_UNSPEC),
        tls=_ssl_context(user) if protocol.endswith("SSL") else None,
        sasl=_sasl(user) if protocol.startswith("SASL") else None,
    )


def _address(server: str) -> Address:
    found = _SERVER.fullmatch(server)
    if found is None:
        raise OptionError(
            "EOS_OPTION_KAFKA_INVALID",
            f"Option 'kafka.bootstrap.servers' names '{server}', which is no address.",
            hint="Give host:port, several with commas between them.",
        )
    return found["v6"] or found["host"], int(found["port"] or _DEFAULT_PORT)


def _sasl(user: Mapping[str, str]) -> Sasl:
    mechanism = user.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism == "GSSAPI":
        return Sasl(mechanism, service=user.get("sasl.kerberos.service.name", "kafka"))
    if mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        return Sasl(mechanism, user.get("sasl.username", ""), user.get("sasl.password", ""))
    if mechanism == "OAUTHBEARER":
        settings = {key: value for key, value in user.items() if "oauthbearer" in key}
        return Sasl(mechanism, oauthbearer=settings)
    raise unsupported(
        "sasl.mechanism",
        f"is {mechanism}, which spark-eos does not speak.",
        hint="Use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI.",
    )


def _ssl_context(user: Mapping[str, str]) -> ssl.SSLContext:
    verify = user.get("enable.ssl.certificate.verification", "true").lower() == "true"
    try:
        context = ssl.create_default_context(cafile=user.get("ssl.ca.location"), cadata=user.get("ssl.ca.pem"))
        context.check_hostname = verify and user.get("ssl.endpoint.identification.algorithm", "https") == "https"
        context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
        if "ssl.crl.location" in user:
            context.load_verify_locations(user["ssl.crl.location"])
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        load_certificate(context, user)
    except (OSError, ssl.SSLError) as error:
        raise OptionError(
            "EOS_OPTION_KAFKA_INVALID",
            f"The kafka.ssl.* certificates cannot be loaded: {error}.",
            hint="Check that the files exist, are in PEM format and can be read on this machine.",
        ) from None
    return context
