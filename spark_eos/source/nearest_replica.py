"""Reading from the nearest replica (KIP-392), by `kafka.client.rack`.

A Fetch request has the reader's rack, and the leader names a replica there, if its brokers have
``replica.selector.class`` set to ``org.apache.kafka.common.replica.RackAwareReplicaSelector`` and a ``broker.rack``
each. The task reads from that replica until it fails, or for five minutes; then it sends to the leader again.
"""

from __future__ import annotations

import logging
import os
import re

from spark_eos.base import system
from spark_eos.base.caches import log_once
from spark_eos.kafka.config.java_names import canonical
from spark_eos.kafka.config.properties import KafkaProperties

#: Seconds for which a replica that the leader has named is used, as Java's ``metadata.max.age.ms``.
_PREFERRED_S = 300.0
#: Seconds for which the leader serves the rows after a replica was of no use.
_AWAY_S = 60.0
_VARIABLE = re.compile(r"\$\{env:(\w+)\}")

_Key = tuple[KafkaProperties, int, str, int]
#: The replica to read from, or None for the leader, which is then not sent the rack; and until when that holds.
_choices: dict[_Key, tuple[int | None, float]] = {}


def rack_here(kafka: KafkaProperties) -> str:
    """Return the rack of this process: ``client.rack``, with each ``${env:NAME}`` replaced by the environment variable
    NAME. Empty if there is none."""
    return _VARIABLE.sub(lambda match: _variable(match[1]), canonical(kafka).get("client.rack", ""))


def _variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        log_once(
            logging.WARNING,
            "the environment variable %s, which kafka.client.rack names, is not set here: this executor reads from "
            "leaders, wherever they are. Set it for every executor, as by spark.executorEnv.%s.",
            name,
            name,
        )
    return value


class NearestReplica:
    """The broker to read one partition from. All readers of a process share their choices."""

    def __init__(self, kafka: KafkaProperties, topic: str, partition: int) -> None:
        self._rack = rack_here(kafka)
        self._key: _Key = kafka, os.getpid(), topic, partition

    @property
    def node(self) -> int | None:
        """The id of the replica to read from; None for the leader."""
        return self._choice()[0]

    @property
    def rack(self) -> str:
        """The rack for Fetch requests; empty while the leader is to serve the rows itself."""
        node, until = self._choice()
        return "" if node is None and until else self._rack

    def prefer(self, node: int) -> None:
        """Read from this replica, which the leader has named."""
        self._choose(node, _PREFERRED_S)

    def leave(self) -> None:
        """Read from the leader for a minute: the replica was of no use."""
        self._choose(None, _AWAY_S)

    def _choice(self) -> tuple[int | None, float]:
        choice = _choices.get(self._key)
        return choice if choice is not None and system.monotonic() < choice[1] else (None, 0.0)

    def _choose(self, node: int | None, valid_s: float) -> None:
        now = system.monotonic()
        for key in [key for key, (_, until) in _choices.items() if until <= now]:
            del _choices[key]
        _choices[self._key] = node, now + valid_s
