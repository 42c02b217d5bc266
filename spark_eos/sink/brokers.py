"""What the sink requires of the brokers, by the cluster's transaction.version, before any task runs."""

from __future__ import annotations

from spark_eos.errors import KafkaError
from spark_eos.kafka.admin.configs import each_broker_setting
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.requests.add_partitions_to_txn import VERIFY_ADDITION
from spark_eos.log import logger
from spark_eos.options.parse import SinkOptions

_FENCING = 2
#: Since Kafka 3.6, and true by default.
_VERIFICATION = "transaction.partition.verification.enable"


def check_brokers(options: SinkOptions) -> None:
    """Raise KafkaError where the brokers, by their version or settings, could let a late batch stay open for ever, or
    cannot do what an option asks for (EOS_BROKER_VERSION, EOS_TRANSACTION_VERIFICATION_OFF, EOS_TRANSACTION_VERSION).

    With transaction.version 2, the end of a transaction fences its producer, so that nothing comes late.
    """
    client = broker_client(options.kafka)
    level = client.feature("transaction.version")
    if level >= _FENCING:
        return
    if options.two_phase:
        raise KafkaError(
            "EOS_TRANSACTION_VERSION",
            "'transaction.two.phase.commit' is true, but the cluster's finalized transaction.version is "
            f"{level}: transactions that never expire need {_FENCING}.",
            hint=f"Run kafka-features.sh upgrade --feature transaction.version={_FENCING}, or remove the option.",
            found=level,
        )
    old = client.lacking(VERIFY_ADDITION)
    if old:
        raise KafkaError(
            "EOS_BROKER_VERSION",
            f"These brokers of {options.kafka.bootstrap_servers} are older than Apache Kafka 3.6, or another "
            f"implementation: {', '.join(map(str, old))}. They do not verify that a batch belongs to a transaction, so "
            "a late batch would hold back readers forever (KIP-890).",
            hint="Use brokers of Apache Kafka 3.6 or newer.",
            brokers=old,
        )
    _check_verification(options)


def _check_verification(options: SinkOptions) -> None:
    off = without(options.kafka, _VERIFICATION)
    if off:
        raise KafkaError(
            "EOS_TRANSACTION_VERIFICATION_OFF",
            f"These brokers of {options.kafka.bootstrap_servers} do not have {_VERIFICATION}=true: "
            f"{', '.join(map(str, off))}. A late batch would hold back readers forever (KIP-890).",
            hint=f"Set {_VERIFICATION}=true on every broker, which is the default; it needs no restart.",
            brokers=off,
        )


def without(kafka: KafkaProperties, setting: str, otherwise: str = "") -> list[int]:
    """The ids of the brokers that do not have ``setting``=true. Warns where this user may not read that, and says what
    happens ``otherwise``; then there is none."""
    settings = each_broker_setting(kafka, setting)
    if settings is None:
        logger.warning(
            "whether every broker has %s=true cannot be checked, because this user may not read the brokers' settings "
            "(DESCRIBE_CONFIGS on the cluster)%s",
            setting,
            otherwise,
        )
        return []
    return sorted(node for node, value in settings.items() if value != "true")
