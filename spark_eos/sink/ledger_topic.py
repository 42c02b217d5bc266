"""The ledger topic: created, and checked, to be as durable as the coordinators' own state."""

from __future__ import annotations

import logging

from spark_eos.base.caches import log_once, process_cache
from spark_eos.base.retry import retrying
from spark_eos.errors import stop
from spark_eos.kafka.admin.configs import BrokerConfig, broker_config, create_topic, topic_config
from spark_eos.kafka.admin.topics import allowed_operations, describe_topic, describe_topics
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.metadata import DescribedTopic
from spark_eos.ledger.errors import ledger_unauthorized
from spark_eos.ledger.own_topics import INTERNAL, samples
from spark_eos.ledger.record_forms import OwnTopic, may_be_head, own_topic_of

LEDGER_PARTITIONS = 8

#: The brokers' settings of the coordinators' own state: its replicas, and how many of them have to have a record.
_STATE_REPLICATION = "transaction.state.log.replication.factor"
_STATE_IN_SYNC = "transaction.state.log.min.isr"

_IN_SYNC_S = 15.0
#: Kafka's defaults of these two settings.
_REPLICAS, _NEEDED_IN_SYNC = 3, 2
_CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
    # A leader that lacks decisions would let rows be written twice.
    "unclean.leader.election.enable": "false",
}


def make_ledger(client: BrokerClient, topic: str, kind: OwnTopic = OwnTopic.LEDGER) -> int:
    """Return the number of partitions as `ledger_partitions` does, by the brokers' settings as they are now."""
    return ledger_partitions(client, topic, broker_config(client), kind)


def ledger_partitions(client: BrokerClient, topic: str, broker: BrokerConfig, kind: OwnTopic = OwnTopic.LEDGER) -> int:
    """Return the number of partitions of the ledger topic, which is created if it is missing. ``kind``: or of a topic
    that is to be as durable.

    Raises LedgerError, TopicError, KafkaError and ConnectionFailed.
    """
    if not describe_topics(client, [topic], missing_ok=True, unknown_s=0):
        _create(client, topic, broker)
    return len(check_ledger(client, topic, broker, kind).partitions)


def _create(client: BrokerClient, topic: str, broker: BrokerConfig) -> None:
    if broker is None:
        replication = min(_REPLICAS, len(client.brokers()))
        in_sync = min(_NEEDED_IN_SYNC, replication)
    else:
        replication, in_sync = of_the_state(broker)
    config = _CONFIG | {"min.insync.replicas": str(in_sync)}
    why = create_topic(client, topic, LEDGER_PARTITIONS, replication, config)
    if why:
        raise stop("EOS_LEDGER_NOT_CREATED", topic=topic, why=why, replication=replication, in_sync=in_sync)


def check_ledger(
    client: BrokerClient, topic: str, broker: BrokerConfig, kind: OwnTopic = OwnTopic.LEDGER
) -> DescribedTopic:
    """Return the description of a ledger topic that exists. Raises LedgerError and TopicError where it is unsuitable,
    and warns where it is less durable than the coordinators' own state, or that cannot be compared. ``kind``: see
    `ledger_partitions`."""
    config = topic_config(client, topic)
    policy = config["cleanup.policy"]
    if policy != "compact":
        raise stop(
            "EOS_LEDGER_UNSUITABLE.setting",
            topic=topic,
            setting="cleanup.policy",
            value=policy,
            consequence="decisions would be deleted",
            needed="compact",
        )
    if config["unclean.leader.election.enable"] == "true":
        raise stop(
            "EOS_LEDGER_UNSUITABLE.setting",
            topic=topic,
            setting="unclean.leader.election.enable",
            value="true",
            consequence="a new leader may lack decisions, and their rows would be written again",
            needed="false",
        )
    in_sync = int(config["min.insync.replicas"])
    description = _check_in_sync(client, topic, in_sync)
    for text in less_durable(topic, min(len(p.replica_nodes) for p in description.partitions), in_sync, broker):
        log_once(logging.WARNING, "%s", text)
    allowed = allowed_operations(description)
    lacking = sorted({"READ", "WRITE"} - allowed) if allowed is not None else []
    if lacking:
        raise ledger_unauthorized(f"{' and '.join(lacking)} the ledger topic {topic}")
    other = INTERNAL if description.is_internal else _other(client, topic, len(description.partitions), kind)
    if other is not None:
        raise stop("EOS_LEDGER_UNSUITABLE.other_records", topic=topic, purpose=kind.value, what=other)
    return description


@process_cache(maxsize=16)
def _other(client: BrokerClient, topic: str, partitions: int, kind: OwnTopic) -> str | None:
    """Return a description of the topic's records, if it is no topic of this kind, by a sample that a process reads
    once. A topic with any record of this kind is one."""
    rows = [row for row in samples(client, {topic: partitions})[topic] if row[2] is not None]
    kinds = {own_topic_of(key, value) for _, key, value in rows}
    if kind in kinds or not rows or any(may_be_head(key, value) for _, key, value in rows):
        return None
    return next((other.value for other in kinds if other is not None), "a topic with rows of another program")


def _check_in_sync(client: BrokerClient, topic: str, needed: int) -> DescribedTopic:
    """Return the topic, once enough of its replicas are in sync."""
    for _ in retrying(_IN_SYNC_S):  # restarted replicas take a moment to be in sync
        description = describe_topic(client, topic)
        # Brokers do not require more replicas in sync than exist.
        short = [p for p in description.partitions if len(p.isr_nodes) < min(needed, len(p.replica_nodes))]
        if not short:
            return description
    raise stop(
        "EOS_LEDGER_NOT_WRITABLE.replicas",
        partition=short[0].partition_index,
        topic=topic,
        in_sync=len(short[0].isr_nodes),
        replicas=len(short[0].replica_nodes),
        needed=needed,
    )


def of_the_state(broker: dict[str, str]) -> tuple[int, int]:
    """Return how many replicas the coordinators' own state has, and how many of them have to have a record."""
    replicas = int(broker[_STATE_REPLICATION])
    return replicas, min(replicas, int(broker[_STATE_IN_SYNC]))


def less_durable(topic: str, replicas: int, in_sync: int, broker: BrokerConfig) -> list[str]:
    """Return warnings about a ledger whose partitions have at least so many replicas, of which ``in_sync`` have to have
    a record, compared with the coordinators' own state."""
    if broker is None:
        return [
            f"the ledger topic {topic} has {replicas} replica(s) and min.insync.replicas={in_sync}; whether it is as "
            "durable as __transaction_state cannot be checked, because this user may not read the brokers' settings "
            "(DESCRIBE_CONFIGS on the cluster)"
        ]
    problems = []
    wanted, wanted_in_sync = of_the_state(broker)
    if replicas < wanted:
        problems.append(
            f"the ledger topic {topic} has {replicas} replica(s), but __transaction_state has {wanted}: the query "
            "stops while brokers with them are away, and needs a new checkpoint if they lose it. If they lose only the "
            "newest decisions, rows can be written twice. Give it more (kafka-reassign-partitions.sh)"
        )
    if in_sync < wanted_in_sync:
        problems.append(
            f"the ledger topic {topic} has min.insync.replicas={in_sync}, but __transaction_state has "
            f"{wanted_in_sync}: if brokers with the newest decisions lose them, rows can be written twice. Raise it: "
            "kafka-configs.sh --bootstrap-server … --alter --entity-type topics "
            f"--entity-name {topic} --add-config min.insync.replicas={wanted_in_sync}"
        )
    return problems
