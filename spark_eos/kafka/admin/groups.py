"""What the cluster says about consumer groups: who is in one, and what it has committed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient

from spark_eos.kafka.admin.topics import COORDINATOR_MOVING, TIMEOUT_S, Offsets, answer, named
from spark_eos.kafka.config.librdkafka import librdkafka_config
from spark_eos.kafka.config.properties import Isolation, KafkaProperties
from spark_eos.retry import retrying


def active_members(kafka: KafkaProperties, group: str) -> list[str]:
    """Who is in the group, as "client id at host"; empty for a group without members and for one that is not there.

    Raises KafkaError (EOS_KAFKA_REFUSED) and ConnectionFailed.
    """

    def ask(admin: AdminClient, seconds: float) -> Any:
        return admin.describe_consumer_groups([group], request_timeout=seconds)[group].result()

    began = time.monotonic()
    try:
        members = answer(kafka, ask).members
    except KafkaException as error:
        if error.args[0].code() == ClientError.GROUP_ID_NOT_FOUND:
            return []
        raise named(kafka, f"group {group}", error.args[0], time.monotonic() - began) from None
    return [f"{member.client_id} at {member.host}" for member in members]


def committed_offsets(
    kafka: KafkaProperties,
    group: str,
    partitions: Mapping[str, Iterable[int]],
    timeout_s: float = TIMEOUT_S,
    *,
    isolation: Isolation = "read_committed",
) -> Offsets:
    """What the group has committed for these partitions; those without are left out. Errors as for `active_members`.

    With ``read_committed``, offsets that an open transaction is about to commit are waited for. A consumer asks, which
    joins nothing: the admin client's own call ends the process where the group's coordinator has moved (librdkafka
    issue 5040).
    """
    wanted = [TopicPartition(topic, p) for topic, numbers in partitions.items() for p in numbers]
    ours = {"group.id": group, "isolation.level": isolation, "enable.auto.commit": "false"}
    consumer = Consumer(librdkafka_config(kafka, "consumer", ours))
    began = time.monotonic()
    refused: ClientError | None = None
    try:
        for _ in retrying(timeout_s):
            found, refused = _committed(consumer, wanted, began + timeout_s - time.monotonic())
            if refused is None or refused.code() not in COORDINATOR_MOVING:
                break
    finally:
        consumer.close()
    if refused is not None:
        stable = isolation == "read_committed" and refused.code() == ClientError._TIMED_OUT
        why = f"{refused.str()}; an open transaction may hold newer ones" if stable else None
        raise named(kafka, f"the offsets of group {group}", refused, time.monotonic() - began, why)
    result: Offsets = {}
    for place in found:
        if place.offset >= 0:
            result.setdefault(place.topic, {})[place.partition] = place.offset
    return result


def _committed(
    consumer: Consumer, wanted: list[TopicPartition], seconds: float
) -> tuple[list[TopicPartition], ClientError | None]:
    try:
        found = consumer.committed(wanted, timeout=max(0.1, seconds))
    except KafkaException as error:
        return [], error.args[0]
    return found, next((place.error for place in found if place.error is not None), None)
