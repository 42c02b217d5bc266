"""Requirements of the sink on the brokers, by the cluster's transaction.version, checked before any task runs."""

from __future__ import annotations

from spark_eos.base.log import logger
from spark_eos.errors import stop
from spark_eos.kafka.admin.configs import each_broker_setting
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.add_partitions_to_txn import VERIFY_ADDITION
from spark_eos.kafka.transactions import FENCING_LEVEL

#: Since Kafka 3.6, and true by default.
_VERIFICATION = "transaction.partition.verification.enable"


def check_brokers(client: BrokerClient, *, two_phase: bool) -> None:
    """Raise KafkaError where the brokers, by their version or settings, could let a late batch stay open for ever
    (EOS_BROKER_UNSUITABLE), or lack two-phase commit though an option asks for it (EOS_TWO_PHASE_UNAVAILABLE).

    With transaction.version 2, the end of a transaction fences its producer, so that nothing comes late.
    """
    level = client.feature("transaction.version")
    if level >= FENCING_LEVEL:
        return
    if two_phase:
        raise stop("EOS_TWO_PHASE_UNAVAILABLE.transaction_version", found=level)
    old = client.brokers_without(VERIFY_ADDITION)
    if old:
        raise stop(
            "EOS_BROKER_UNSUITABLE.version",
            brokers=old,
            bootstrap_servers=client.bootstrap_servers,
            old=", ".join(map(str, old)),
        )
    _check_verification(client)


def _check_verification(client: BrokerClient) -> None:
    off = without(client, _VERIFICATION)
    if off:
        raise stop(
            "EOS_BROKER_UNSUITABLE.verification_off",
            brokers=off,
            bootstrap_servers=client.bootstrap_servers,
            off=", ".join(map(str, off)),
        )


def without(client: BrokerClient, setting: str, otherwise: str = "") -> list[int]:
    """Return the ids of the brokers that do not have ``setting``=true; none, with a warning, if this user may not read
    it. ``otherwise``: the consequence, as the end of the warning."""
    settings = each_broker_setting(client, setting)
    if settings is None:
        logger.warning(
            "whether every broker has %s=true cannot be checked, because this user may not read the brokers' settings "
            "(DESCRIBE_CONFIGS on the cluster)%s",
            setting,
            otherwise,
        )
        return []
    return sorted(node for node, value in settings.items() if value != "true")
