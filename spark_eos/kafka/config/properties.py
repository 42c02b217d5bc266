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
    """One of the addresses, which is none, as an error shows it: what is before an @ may be a password, and have
    commas, so that it is taken for several of ``servers``; then what is behind the last @ stands for it."""
    text = servers if "@" in servers.partition(server)[2] else server
    return text.rpartition("@")[2]


def is_secret(key: str) -> bool:
    """Whether the value of this Kafka property must not be printed."""
    return any(mark in key.lower() for mark in _SECRET_MARKS)
