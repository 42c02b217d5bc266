"""A cluster where everybody says who they are, by each mechanism, and may do only what the rules let them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from spark_eos.tools.devcluster import DevCluster
from spark_eos.tools.devcluster.runtime import JVM_FLAGS
from tests.support.servers.certificates import Authority, Signed
from tests.support.servers.token_server import TokenServer
from tests.support.servers.two_phase import TWO_PHASE
from tests.support.waiting import TIMEOUT

#: May do everything.
USER, PASSWORD = "ann", "hunter2-and-more"
#: May do what the rules let him; by PLAIN, with the same password.
LIMITED = "bob"

#: For how long the listener TOKENS takes a client to be who it said it is.
SESSION_S = 2.0

LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "SASL": "SASL_SSL",
    "TOKENS": "SASL_PLAINTEXT",
    "PASSWORDS": "SASL_PLAINTEXT",
}
_MODULES = "org.apache.kafka.common.security"
_VALIDATOR = f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"


@dataclass(frozen=True)
class Secure:
    """The cluster, whose plain listener is for the tests themselves. ``foreign``: an authority that nobody trusts."""

    cluster: DevCluster
    authority: Authority
    ca: Path
    tokens: TokenServer
    folder: Path

    @functools.cached_property
    def foreign(self) -> Path:
        file = self.folder / "foreign.pem"
        file.write_text(Authority("foreign").pem)
        return file

    @functools.cached_property
    def client(self) -> Signed:
        """What the listener MUTUAL knows as ``CN=client``."""
        return self.authority.sign("client")

    def properties(self, way: str) -> dict[str, str]:
        """A client's, for a listener with TLS (``TLS``, ``MUTUAL``), a mechanism on one with TLS, or ``TOKENS``."""
        tls = {"ssl.ca.location": str(self.ca)}
        if way == "TLS":
            return {"bootstrap.servers": self.cluster.servers("TLS"), "security.protocol": "SSL", **tls}
        if way == "MUTUAL":
            keys = {"ssl.certificate.pem": self.client.certificate_pem, "ssl.key.pem": self.client.key_pem()}
            return {"bootstrap.servers": self.cluster.servers("MUTUAL"), "security.protocol": "SSL", **tls, **keys}
        if way == "TOKENS":
            protocol = {"security.protocol": "SASL_PLAINTEXT", "bootstrap.servers": self.cluster.servers("TOKENS")}
            return protocol | self.tokens.properties()
        protocol = {"security.protocol": "SASL_SSL", "bootstrap.servers": self.cluster.servers("SASL"), **tls}
        if way == "OAUTHBEARER":
            unsecured = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": f"principal={USER}"}
            return {**protocol, "sasl.mechanism": way, **unsecured}
        return {**protocol, "sasl.mechanism": way, "sasl.username": USER, "sasl.password": PASSWORD}

    def limited(self) -> dict[str, str]:
        """Those of the user whom rules limit."""
        return {
            "bootstrap.servers": self.cluster.servers("PASSWORDS"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": LIMITED,
            "sasl.password": PASSWORD,
        }


def _settings(server: Path, ca: Path, keys: Path) -> dict[str, str]:
    plain = f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}" user_{LIMITED}="{PASSWORD}";'
    bearer = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required"
    sasl, tokens, passwords = (f"listener.name.{name}" for name in ("sasl", "tokens", "passwords"))
    stores = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(server)}
    stores |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca)}
    return {
        **stores,
        "listener.name.mutual.ssl.client.auth": "required",
        f"{sasl}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{sasl}.plain.sasl.jaas.config": plain,
        f"{sasl}.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        f"{sasl}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        f"{sasl}.oauthbearer.sasl.jaas.config": f'{bearer} unsecuredLoginStringClaim_sub="broker";',
        f"{passwords}.sasl.enabled.mechanisms": "PLAIN",
        f"{passwords}.plain.sasl.jaas.config": plain,
        f"{tokens}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{tokens}.oauthbearer.sasl.jaas.config": f"{bearer};",
        f"{tokens}.oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
        f"{tokens}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        f"{tokens}.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
        f"{tokens}.oauthbearer.connections.max.reauth.ms": str(int(1000 * SESSION_S)),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{USER};User:CN=client",
        **TWO_PHASE,
    }


@contextmanager
def secure_cluster(folder: Path) -> Iterator[Secure]:
    """The cluster, up until the end of the block."""
    authority, tokens = Authority(), TokenServer()
    ca, keys = folder / "ca.pem", tokens.write_keys(folder / "keys.json")
    ca.write_text(authority.pem)
    config = _settings(authority.sign("broker").write_pem(folder / "broker.pem"), ca, keys)
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"
    try:
        with DevCluster(config=config, listeners=LISTENERS, jvm_flags=[*JVM_FLAGS, allowed]) as cluster:
            add_passwords(cluster)
            yield Secure(cluster, authority, ca, tokens, folder)
    finally:
        tokens.close()


def add_passwords(cluster: DevCluster) -> None:
    """The user's password, for both kinds of SCRAM."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        upsertion = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        admin.alter_user_scram_credentials([upsertion])[USER].result(TIMEOUT)
