"""The user's ``kafka.*`` properties; secrets are never printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

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


class KafkaProperties(Mapping[str, str]):
    """The user's ``kafka.*`` options, without that prefix; prints secrets as ``***``."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KafkaProperties) and self._values == other._values

    def __repr__(self) -> str:
        return repr({k: "***" if is_secret(k) else v for k, v in self._values.items()})

    @property
    def bootstrap_servers(self) -> str:
        return self._values["bootstrap.servers"]


def is_secret(key: str) -> bool:
    """Whether the value of this Kafka property must not be printed."""
    return any(mark in key.lower() for mark in _SECRET_MARKS)
