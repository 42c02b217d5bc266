"""Where mirrored topics come from, so that no row goes round in circles: records in the first partition of the map's
topic.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

from spark_eos.base import system
from spark_eos.base.log import logger
from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.admin.topics import describe_topics, topic_partitions
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.pipelines.mirror.map_topic import FOREIGN, METADATA, MapPartition, foreign, write_metadata

#: How many seconds a map's topic must be unknown to brokers to count as missing.
_UNKNOWN_S = 1.0
#: How the key of an origin begins.
_KEY = b'{"origin":'


@dataclass(frozen=True)
class Origin:
    """A target topic and the topic that it is mirrored from. ``chain``: ids of clusters, the nearest first: that of the
    source, and those that the source itself is mirrored from."""

    target: str
    target_id: str
    source: str
    source_id: str
    chain: tuple[str, ...]

    def is_from(self, cluster: str) -> bool:
        """Whether the topic is mirrored directly from this cluster."""
        return self.chain[:1] == (cluster,)


class OriginsLog:
    """The origins of all topics of a cluster, for repeated reads: each reads only what is new."""

    def __init__(self, client: BrokerClient, map_topic: str) -> None:
        self._client, self._topic = client, map_topic
        self._id, self._end = "", 0
        self._newest: dict[bytes, tuple[int, bytes | None]] = {}
        self._known: list[Origin] = []
        self._asked_s = -math.inf

    def read(self, unknown_s: float = _UNKNOWN_S) -> list[Origin]:
        """The origins as they are now; if the map's topic is missing, those that were read before. ``unknown_s`` as in
        `describe_topics`; errors as for `MapPartition`."""
        self._asked_s = system.monotonic()
        there = describe_topics(self._client, [self._topic], missing_ok=True, unknown_s=unknown_s).get(self._topic)
        if there is None:
            return self._known
        part = MapPartition(self._client, self._topic, METADATA)
        if there.id != self._id or part.end < self._end:
            self._id, self._end, self._newest = there.id, 0, {}
        rows = part.since(self._end)
        # A map of one partition has its entries here, too.
        self._newest |= {key: (at, value) for at, key, value in rows if key is not None and key.startswith(_KEY)}
        self._end = part.end
        newest = self._newest.items()
        self._known = [self._origin(at, key, value) for key, (at, value) in newest if value is not None]
        return self._known

    def _origin(self, at: int, key: bytes, value: bytes) -> Origin:
        try:
            return _origin(key, value)
        except FOREIGN as error:
            raise foreign(self._topic, METADATA, at, error) from None

    def lately(self, age_s: float) -> list[Origin]:
        """The origins as they were at most ``age_s`` seconds ago; older ones while no broker answers."""
        if system.monotonic() - self._asked_s >= age_s:
            try:
                return self.read(unknown_s=0)
            except ConnectionFailed as error:
                logger.warning("whether a new mirror has closed a circle is not known at the moment: %s", error.message)
        return self._known


def _origin(key: bytes, value: bytes) -> Origin:
    place, fields = json.loads(key), json.loads(value)
    return Origin(fields["target"], place["origin"], fields["source"], place["source"], tuple(fields["chain"]))


def origins(client: BrokerClient, map_topic: str) -> list[Origin]:
    """The origins of all topics of a cluster; none if nothing was ever mirrored to it. Errors as for `MapPartition`."""
    return OriginsLog(client, map_topic).read()


def origins_from(client: BrokerClient, map_topic: str, cluster: str) -> list[Origin]:
    """The origins of the topics that are mirrored directly from ``cluster``, an id. Raises TopicError
    (EOS_TOPIC_MISSING) if there is no map, and errors as for `MapPartition`."""
    topic_partitions(client, [map_topic])
    return [origin for origin in origins(client, map_topic) if origin.is_from(cluster)]


def chains_of(known: Iterable[Origin]) -> dict[str, tuple[str, ...]]:
    """By the id of each target topic, the clusters that its rows may come from."""
    found: dict[str, set[str]] = {}
    for origin in known:
        found.setdefault(origin.target_id, set()).update(origin.chain)
    return {topic_id: tuple(sorted(clusters)) for topic_id, clusters in found.items()}


def write_origin(client: BrokerClient, map_topic: str, origin: Origin) -> None:
    """Returns when the brokers have it. Raises KafkaError (EOS_MIRROR_MAP_NOT_WRITABLE)."""
    key = json.dumps({"origin": origin.target_id, "source": origin.source_id}).encode()
    fields = {"target": origin.target, "source": origin.source, "chain": origin.chain}
    write_metadata(client, map_topic, [(key, json.dumps(fields).encode())], f"Where {origin.target} comes from")
