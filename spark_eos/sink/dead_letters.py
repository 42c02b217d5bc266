"""Checks the dead-letter topic before anything is written: it must take rows that other topics refuse."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spark_eos.base.caches import ttl_cache
from spark_eos.errors import stop
from spark_eos.kafka.admin.configs import topic_config
from spark_eos.kafka.admin.topics import describe_topic
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.options.parse import SinkOptions

#: Seconds for which a process takes a topic's settings for the same. Where they have changed, the brokers' answers
#: count.
_FRESH_S = 30

_OPTION = "deadLetters.topic"
#: Bytes that hints add to the largest row of other topics, for the headers of a dead letter.
_ROOM_FOR_HEADERS = 65_536


@dataclass(frozen=True)
class _Settings:
    """Settings of a topic: the largest batch in bytes; how many replicas there are of each partition, and how many of
    these have to be in sync; whether it is compacted."""

    max_bytes: int
    replicas: int
    in_sync: int
    compacted: bool


def check_dead_letters(client: BrokerClient, options: SinkOptions) -> int:
    """Return the dead-letter topic's number of partitions; 0 without one.

    Raises OptionError (EOS_OPTION_CONFLICT), TopicError (EOS_DEAD_LETTER_TOPIC, EOS_TOPIC_MISSING),
    Unauthorized.
    """
    letters = options.dead_letters
    if letters is None:
        return 0
    for name, other in (("topic", options.topic), ("ledger.topic", options.ledger_topic)):
        if letters == other:
            raise stop("EOS_OPTION_CONFLICT.same_topic", option=_OPTION, other=name, topic=letters, kind="dead letters")
    if _settings(client, letters).compacted:
        raise stop("EOS_DEAD_LETTER_TOPIC.compacted", topic=letters)
    if options.topic is not None:
        limits(client, options, [options.topic])
    return len(describe_topic(client, letters).partitions)


def limits(client: BrokerClient, options: SinkOptions, topics: Iterable[str]) -> dict[str, int]:
    """Return the largest batch, in bytes, that each of these topics takes, and the dead-letter topic; empty without
    one.

    Raises TopicError (EOS_DEAD_LETTER_TOPIC) where that does not take more than all others, or is less durable.
    """
    letters = options.dead_letters
    if letters is None:
        return {}
    own = _settings(client, letters)
    settings = {topic: _settings(client, topic) for topic in topics if topic != letters}
    for topic, other in settings.items():
        _compare(client.bootstrap_servers, letters, own, topic, other)
    return {letters: own.max_bytes, **{topic: other.max_bytes for topic, other in settings.items()}}


def _compare(servers: str, letters: str, own: _Settings, topic: str, other: _Settings) -> None:
    needed = other.max_bytes + _ROOM_FOR_HEADERS
    if own.max_bytes <= other.max_bytes:
        raise stop(
            "EOS_DEAD_LETTER_TOPIC.too_small",
            topic=letters,
            own_max_bytes=own.max_bytes,
            other_topic=topic,
            max_bytes=other.max_bytes,
            servers=servers,
            needed=needed,
        )
    if own.replicas < other.replicas or own.in_sync < other.in_sync:
        raise stop(
            "EOS_DEAD_LETTER_TOPIC.less_durable",
            topic=letters,
            own_replicas=own.replicas,
            own_in_sync=own.in_sync,
            other_topic=topic,
            replicas=other.replicas,
            in_sync=other.in_sync,
            needed=needed,
        )


@ttl_cache(_FRESH_S, maxsize=256)
def _settings(client: BrokerClient, topic: str) -> _Settings:
    described = describe_topic(client, topic)
    config = topic_config(client, topic)
    return _Settings(
        int(config["max.message.bytes"]),
        min(len(partition.replica_nodes) for partition in described.partitions),
        int(config["min.insync.replicas"]),
        "compact" in config["cleanup.policy"],
    )
