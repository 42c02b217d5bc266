"""One Metadata request to one broker, to see whether this broker answers: a Kafka client picks a broker by itself, and
asks others, too."""

from __future__ import annotations

import socket
from contextlib import closing
from dataclasses import dataclass

from spark_eos.kafka.net.connection import Connection
from spark_eos.kafka.net.metadata import METADATA, about_topics

NO_LEADER = -1
#: A broker that works answers at once; one on a busy machine may take seconds.
_ANSWER_S = 10.0


@dataclass(frozen=True)
class Metadata:
    """`brokers`: the ids of the live brokers. `leaders`: the leader of each partition of the requested topic, -1 for
    none.
    """

    cluster_id: str | None
    brokers: frozenset[int]
    leaders: dict[int, int]


def ask(port: int, topic: str | None = None) -> Metadata | None:
    """Return the response of the broker on this loopback port, or None if it does not answer (yet)."""
    body = METADATA.asks.write(about_topics([] if topic is None else [topic]))
    try:
        broker = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S)
        with closing(Connection[None](broker, node=0)) as connection:
            connection.ask(METADATA.api, METADATA.last, [body], None)
            response = connection.answer(METADATA.answers.read, _ANSWER_S)
    except (OSError, OverflowError):
        return None
    partitions = [partition for topic in response.topics for partition in topic.partitions]
    leaders = {p.partition_index: NO_LEADER if p.error_code else p.leader_id for p in partitions}
    return Metadata(response.cluster_id, frozenset(broker.node_id for broker in response.brokers), leaders)
