"""The configuration of this package's own client: addresses, client id, TLS and SASL, from the user's properties."""

from __future__ import annotations

import importlib.util
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_eos.errors import invalid_option, missing_option, stop, unsupported_option
from spark_eos.kafka.config.java_names import canonical
from spark_eos.kafka.config.own_client import check_names
from spark_eos.kafka.config.properties import KafkaProperties, shown_address
from spark_eos.kafka.config.stores import certificates_unusable
from spark_eos.kafka.config.tls import Tls
from spark_eos.kafka.config.tokens import token_owner, token_settings
from spark_eos.kafka.config.values import enumerated, integer

_SILENCE_S = 30.0
_DEFAULT_PORT = 9092
_FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}
#: ``host``, ``host:port``, ``[v6 address]:port``, each with or without ``PROTOCOL://`` before it (`canonical` compares
#: that).
_SERVER = re.compile(r"(?:\w+://)?(?:\[(?P<v6>[^\]\s]+)\]|(?P<host>[^\s:;/@\[\]]+))(?::(?P<port>[0-9]{1,5}))?")

Address = tuple[str, int]


@dataclass(frozen=True)
class Kerberos:
    """Settings of Kerberos. ``service``: the first part of the brokers' principals. Without ``principal`` and
    ``keytab``, Kerberos uses its default credentials."""

    service: str = "kafka"
    principal: str = ""
    keytab: str = ""


@dataclass(frozen=True)
class Sasl:
    """A SASL mechanism, in capitals, with the fields that it needs. Secrets do not print."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    kerberos: Kerberos = field(default_factory=Kerberos)
    oauthbearer: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def who(self) -> str:
        """The user in words, as far as the settings name one."""
        if self.mechanism == "GSSAPI":
            return (
                f"user '{self.kerberos.principal}'" if self.kerberos.principal else "the user of Kerberos's credentials"
            )
        if self.mechanism == "OAUTHBEARER":
            return token_owner(self.oauthbearer)
        return f"user '{self.username}'"


@dataclass(frozen=True)
class ClientConfig:
    """Settings of connections to the brokers of a cluster. ``servers``: the bootstrap servers; ``family``: the address
    family; ``silence_s``, ``fetch_wait_ms``: see `spark_eos.kafka.net.client.BrokerClient`."""

    servers: tuple[Address, ...]
    client_id: str
    family: int
    silence_s: float
    fetch_wait_ms: int
    tls: Tls | None
    sasl: Sasl | None


def client_config(kafka: KafkaProperties) -> ClientConfig:
    """Return the configuration of this package's own client.

    Raises OptionError for an unknown property, an unsupported mechanism, a malformed address or a certificate that
    cannot be read.
    """
    check_names(kafka)
    user = canonical(kafka)
    protocol = enumerated(user, "security.protocol", "plaintext")
    return ClientConfig(
        servers=_addresses(kafka.bootstrap_servers),
        client_id=user.get("client.id", "spark-eos"),
        family=_FAMILIES[enumerated(user, "broker.address.family", "any")],
        silence_s=min(_SILENCE_S, integer(user, "socket.timeout.ms", 60_000) / 1000),
        fetch_wait_ms=integer(user, "fetch.wait.max.ms", 500),
        tls=_tls(user) if protocol.endswith("ssl") else None,
        sasl=_sasl(user) if protocol.startswith("sasl") else None,
    )


def _addresses(servers: str) -> tuple[Address, ...]:
    addresses = []
    for server in filter(None, map(str.strip, servers.split(","))):
        match = _SERVER.fullmatch(server)
        port = int(match["port"] or _DEFAULT_PORT) if match else 0
        if match is None or not 0 < port < 65_536:
            raise invalid_option(
                "kafka.bootstrap.servers",
                f"'{shown_address(server, servers)}', which is no address",
                "host:port, separated by commas",
            )
        addresses.append((match["v6"] or match["host"], port))
    return tuple(addresses)


def _sasl(user: Mapping[str, str]) -> Sasl:
    mechanism = user.get("sasl.mechanism", "GSSAPI")
    if mechanism == "GSSAPI":
        return Sasl(mechanism, kerberos=_kerberos(user))
    if mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        for key in ("sasl.username", "sasl.password"):
            if not user.get(key):
                raise missing_option(f"kafka.{key}", f"{mechanism} takes a user and a password", "that of the user")
        return Sasl(mechanism, user["sasl.username"], user["sasl.password"])
    if mechanism in ("OAUTHBEARER", "AWS_MSK_IAM"):
        return Sasl("OAUTHBEARER", oauthbearer=token_settings(user))
    raise unsupported_option(
        "kafka.sasl.mechanism", mechanism, "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM or GSSAPI"
    )


def _kerberos(user: Mapping[str, str]) -> Kerberos:
    """Return the Kerberos settings. Checks that the package is installed, so that the error comes before any
    connection."""
    if importlib.util.find_spec("gssapi") is None:
        raise stop(
            "EOS_OPTION_UNSUPPORTED.package",
            option="kafka.sasl.mechanism",
            given="GSSAPI",
            package="gssapi, and with it the Kerberos libraries",
            extra="kerberos",
        )
    named = {"service": "service.name", "principal": "principal", "keytab": "keytab"}
    given = {field: user.get(f"sasl.kerberos.{name}", "") for field, name in named.items()}
    return Kerberos(**{field: value for field, value in given.items() if value})


def _tls(user: Mapping[str, str]) -> Tls:
    """Return the TLS settings. Loads the certificates, so that errors come before any connection."""
    tls = Tls(user)
    try:
        tls.context()
    except (OSError, ValueError) as error:  # such as of a password that is too long for OpenSSL
        raise certificates_unusable(error) from None
    return tls
