"""The user's ``kafka.*`` properties; secrets are never printed."""

from __future__ import annotations

from typing import Literal

from spark_eos.base.frozen_settings import Settings

Isolation = Literal["read_committed", "read_uncommitted"]
#: Codecs that Arrow compresses as every Kafka client reads them.
Codec = Literal["none", "gzip", "lz4", "snappy", "zstd"]

#: Parts of Kafka property names whose values must never be printed.
_SECRET_MARKS = (
    "password",
    "passphrase",
    "secret",
    "jaas",
    "key.pem",
    "keystore.key",
    "ssl_key",
    "oauthbearer.config",
    "token",
)


class KafkaProperties(Settings):
    """The user's ``kafka.*`` options, without that prefix; prints secrets as ``***``."""

    def __repr__(self) -> str:
        return repr({k: "***" if is_secret(k) else v for k, v in self._values.items()})

    @property
    def bootstrap_servers(self) -> str:
        return self._values["bootstrap.servers"]


def shown_address(server: str, servers: str) -> str:
    """Return an invalid address as an error may show it. The text before an @ may be a password, and have commas, so
    that it is taken for several of ``servers``; then only the text behind the last @ is returned."""
    text = servers if "@" in servers.partition(server)[2] else server
    return text.rpartition("@")[2]


def is_secret(key: str) -> bool:
    """Return whether the value of this Kafka property must not be printed."""
    return any(mark in key.lower() for mark in _SECRET_MARKS)
