"""The ledger topic: created, and checked, to be as durable as the coordinators' own state."""

from __future__ import annotations

from spark_eos.errors import LedgerError
from spark_eos.kafka.admin.configs import BrokerConfig, create_topic, topic_config
from spark_eos.kafka.admin.topics import allowed_operations, describe_topic, describe_topics
from spark_eos.kafka.codes import OK, name_of
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.errors import ledger_unauthorized
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.net.schema import Record
from spark_eos.log import logger
from spark_eos.retry import retrying

LEDGER_PARTITIONS = 8

#: How many replicas the brokers give to the coordinators' own state.
STATE_REPLICATION = "transaction.state.log.replication.factor"

_IN_SYNC_S = 15.0
#: What Kafka replicates the coordinators' state to by default.
_REPLICAS = 3
_CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
    # A leader that lacks decisions would let rows be written twice.
    "unclean.leader.election.enable": "false",
}


def ledger_partitions(kafka: KafkaProperties, topic: str, broker: BrokerConfig) -> int:
    """The number of partitions of the ledger topic, which is created if it is missing.

    Raises LedgerError, TopicError, KafkaError and ConnectionFailed.
    """
    if not describe_topics(kafka, [topic], missing_ok=True, unknown_s=0):
        _create(kafka, topic, broker)
    return len(check_ledger(kafka, topic, broker).partitions)


def _create(kafka: KafkaProperties, topic: str, broker: BrokerConfig) -> None:
    config = dict(_CONFIG)
    if broker is None:
        replication = min(_REPLICAS, len(broker_client(kafka).brokers()))
    else:
        replication = int(broker[STATE_REPLICATION])
        config["min.insync.replicas"] = broker["transaction.state.log.min.isr"]
    code, said = create_topic(kafka, topic, LEDGER_PARTITIONS, replication, config)
    if code != OK:
        raise LedgerError(
            "EOS_LEDGER_NOT_CREATED",
            f"The ledger topic {topic} does not exist and could not be created: {said or name_of(code)}.",
            hint=f"Create it with cleanup.policy=compact, unclean.leader.election.enable=false and {replication} "
            "replica(s), as __transaction_state has.",
        )


def check_ledger(kafka: KafkaProperties, topic: str, broker: BrokerConfig) -> Record:
    """A ledger topic that is there: its description, or LedgerError, TopicError. Warns of fewer replicas than the
    coordinators' state has."""
    config = topic_config(kafka, topic)
    policy = config["cleanup.policy"]
    if policy != "compact":
        raise LedgerError(
            "EOS_LEDGER_NOT_COMPACTED",
            f"The ledger topic {topic} has cleanup.policy={policy}, which would delete decisions.",
            hint="Set cleanup.policy=compact, or use another topic by 'ledger.topic'.",
            policy=policy,
        )
    if config["unclean.leader.election.enable"] == "true":
        raise LedgerError(
            "EOS_LEDGER_UNCLEAN_ELECTION",
            f"The ledger topic {topic} has unclean.leader.election.enable=true: a new leader may lack decisions, and "
            "the rows of those would be written again.",
            hint="Set it to false for this topic: kafka-configs.sh --bootstrap-server … --alter --entity-type topics "
            f"--entity-name {topic} --add-config unclean.leader.election.enable=false",
        )
    description = _check_in_sync(kafka, topic, int(config["min.insync.replicas"]))
    _look_at_replicas(topic, description, broker)
    allowed = allowed_operations(description)
    lacking = sorted({"READ", "WRITE"} - allowed) if allowed is not None else []
    if lacking:
        raise ledger_unauthorized(f"{' and '.join(lacking)} the ledger topic {topic}")
    return description


def _check_in_sync(kafka: KafkaProperties, topic: str, needed: int) -> Record:
    """The topic, once enough of its replicas are in sync."""
    for _ in retrying(_IN_SYNC_S):  # restarted replicas take a moment to be in sync
        description = describe_topic(kafka, topic)
        # Brokers do not require more replicas in sync than exist.
        short = [p for p in description.partitions if len(p.isr_nodes) < min(needed, len(p.replica_nodes))]
        if not short:
            return description
    raise LedgerError(
        "EOS_LEDGER_NOT_WRITABLE",
        f"Partition {short[0].partition_index} of the ledger topic {topic} has {len(short[0].isr_nodes)} "
        f"replica(s) in sync of {len(short[0].replica_nodes)}, but min.insync.replicas={needed}: nothing can be "
        "written.",
        hint="Bring the missing brokers back, or lower min.insync.replicas.",
    )


def _look_at_replicas(topic: str, description: Record, broker: BrokerConfig) -> None:
    fewest = min(len(p.replica_nodes) for p in description.partitions)
    if broker is None:
        logger.warning(
            "the ledger topic %s has %d replica(s); whether that is as many as __transaction_state has cannot be "
            "checked, because this user may not read the brokers' settings (DESCRIBE_CONFIGS on the cluster)",
            topic,
            fewest,
        )
    elif fewest < int(broker[STATE_REPLICATION]):
        logger.warning("%s", few_replicas(topic, fewest, int(broker[STATE_REPLICATION])))


def few_replicas(topic: str, fewest: int, needed: int) -> str:
    """What follows where the ledger has fewer replicas than the coordinators' state. It is no danger to the rows: a
    head that is lost stops the query."""
    return (
        f"the ledger topic {topic} has {fewest} replica(s), but __transaction_state has {needed}: the query stops "
        "while that broker is away, and needs a new checkpoint if its disk is lost. Give it more "
        "(kafka-reassign-partitions.sh)"
    )
