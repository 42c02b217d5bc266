"""Where mirrored topics come from, so that no row goes in circles: in the first partition of the map's topic."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import Producer

from spark_eos.errors import KafkaError
from spark_eos.kafka.admin.topics import describe_topics, topic_partitions
from spark_eos.kafka.config.librdkafka import librdkafka_config
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.mirror.map_topic import ORIGINS, MapPartition

_WRITE_S = 30.0
#: How the key of an origin begins, as `write_origin` writes it.
_KEY = b'{"origin":'


@dataclass(frozen=True)
class Origin:
    """A topic and what it is mirrored from. ``chain``: ids of clusters, the nearest one first: that of the source, and
    those that the source itself comes from."""

    target: str
    target_id: str
    source: str
    source_id: str
    chain: tuple[str, ...]


def origins(kafka: KafkaProperties, map_topic: str) -> list[Origin]:
    """All of a cluster; none where nothing was ever mirrored to it. Errors as for `MapPartition`."""
    if map_topic not in describe_topics(kafka, [map_topic], missing_ok=True):
        return []
    newest: dict[bytes, bytes | None] = {}
    for _, key, value in MapPartition(kafka, map_topic, ORIGINS):
        if key is not None and key.startswith(_KEY):  # a map of one partition has its entries here, too
            newest[key] = value
    found = [(json.loads(key), json.loads(value)) for key, value in newest.items() if value is not None]
    return [
        Origin(fields["target"], place["origin"], fields["source"], place["source"], tuple(fields["chain"]))
        for place, fields in found
    ]


def origins_from(kafka: KafkaProperties, map_topic: str, cluster: str) -> list[Origin]:
    """Those of the topics of one cluster that are mirrored straight from it. Raises TopicError (EOS_TOPIC_MISSING)
    where there is no map, and errors as for `MapPartition`."""
    topic_partitions(kafka, [map_topic])
    return [origin for origin in origins(kafka, map_topic) if origin.chain[:1] == (cluster,)]


def chain_of(known: Iterable[Origin], topic_id: str) -> tuple[str, ...]:
    """Clusters that rows of this topic may come from, besides the one that it is on."""
    return tuple(sorted({cluster for origin in known if origin.target_id == topic_id for cluster in origin.chain}))


def write_origin(kafka: KafkaProperties, map_topic: str, origin: Origin) -> None:
    """Returns when the brokers have it, once or more often. Raises KafkaError (EOS_MIRROR_ORIGIN_NOT_WRITTEN)."""
    key = json.dumps({"origin": origin.target_id, "source": origin.source_id}).encode()
    fields = {"target": origin.target, "source": origin.source, "chain": origin.chain}
    refused: list[str] = []
    producer = Producer(librdkafka_config(kafka, "producer", {"acks": "all", "linger.ms": 0}))
    producer.produce(
        map_topic,
        json.dumps(fields).encode(),
        key,
        partition=ORIGINS,
        on_delivery=lambda error, _: refused.append(str(error)) if error is not None else None,
    )
    if producer.flush(_WRITE_S) or refused:
        raise KafkaError(
            "EOS_MIRROR_ORIGIN_NOT_WRITTEN",
            f"Where {origin.target} comes from could not be noted in {map_topic}: {'; '.join(refused) or 'no answer'}.",
            hint="Nothing was mirrored. Check that the target's cluster is healthy, and grant WRITE on that topic.",
            topic=map_topic,
        )
