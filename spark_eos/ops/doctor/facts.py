"""What brokers say of themselves and of topics. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_eos.errors import Unauthorized
from spark_eos.kafka.admin.configs import each_broker_config, topic_config
from spark_eos.kafka.admin.topics import describe_topic, describe_topics
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.net.schema import Api

#: Of Kafka 4.1 and newer (KIP-1152).
_LISTS_BY_PATTERN = Api("ListTransactions", 66, 2, 1 << 14)


@dataclass(frozen=True)
class TopicFacts:
    """The brokers that have each partition (``replicas``), how many of them are in sync, and the topic's settings, None
    where this user may not read them."""

    name: str
    replicas: tuple[tuple[int, ...], ...]
    in_sync: tuple[int, ...]
    config: Mapping[str, str] | None


@dataclass(frozen=True)
class ClusterFacts:
    """The numbers of the brokers, their settings (None where this user may not read them), the finalized level of
    ``transaction.version``, and the brokers that are older than Kafka 4.1."""

    nodes: tuple[int, ...]
    config: Mapping[int, Mapping[str, str]] | None
    transaction_version: int
    before_4_1: tuple[int, ...]

    def least(self, setting: str) -> int | None:
        """The lowest value that a broker has; None where nobody could tell."""
        values = [each[setting] for each in (self.config or {}).values() if each.get(setting)]
        return min(map(int, values), default=None)


def cluster_facts(kafka: KafkaProperties) -> ClusterFacts:
    """Raises EosError."""
    client = broker_client(kafka)
    return ClusterFacts(
        tuple(sorted(client.brokers())),
        each_broker_config(kafka),
        client.feature("transaction.version"),
        tuple(client.lacking(_LISTS_BY_PATTERN)),
    )


def topic_facts(kafka: KafkaProperties, topic: str) -> TopicFacts | None:
    """None where there is no such topic. Raises EosError."""
    if not describe_topics(kafka, [topic], missing_ok=True):
        return None
    described = describe_topic(kafka, topic)
    return TopicFacts(
        topic,
        tuple(tuple(p.replica_nodes) for p in described.partitions),
        tuple(len(p.isr_nodes) for p in described.partitions),
        _config(kafka, topic),
    )


def _config(kafka: KafkaProperties, topic: str) -> Mapping[str, str] | None:
    try:
        return topic_config(kafka, topic)
    except Unauthorized:
        return None
