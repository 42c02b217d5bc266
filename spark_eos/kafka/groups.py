"""What the cluster says about consumer groups: who is in one, and what it has committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient

from spark_eos.kafka.metadata import COORDINATOR_MOVING, TIMEOUT_S, Offsets, answer, named
from spark_eos.options import KafkaProperties
from spark_eos.patience import patience

#: Offsets that an open transaction is about to commit are waited for.
_PASSING = COORDINATOR_MOVING | {ClientError.UNSTABLE_OFFSET_COMMIT}


def active_members(kafka: KafkaProperties, group: str) -> list[str]:
    """Who is in the group, as "client id at host"; empty for a group without members and for one that is not there.

    Raises KafkaError (EOS_KAFKA_REFUSED) and ConnectionFailed.
    """

    def ask(admin: AdminClient, seconds: float) -> Any:
        return admin.describe_consumer_groups([group], request_timeout=seconds)[group].result()

    described = _ask(kafka, group, ask)
    return [f"{member.client_id} at {member.host}" for member in described.members] if described else []


def committed_offsets(kafka: KafkaProperties, group: str, partitions: Mapping[str, Iterable[int]]) -> Offsets:
    """What the group has committed for these partitions; those without are left out. Errors as for `active_members`."""
    wanted = [TopicPartition(topic, p) for topic, numbers in partitions.items() for p in numbers]

    def ask(admin: AdminClient, seconds: float) -> Any:
        asked = ConsumerGroupTopicPartitions(group, wanted)
        answers = admin.list_consumer_group_offsets([asked], request_timeout=seconds, require_stable=True)
        return answers[group].result()

    result: Offsets = {}
    found = _ask(kafka, group, ask)
    for place in found.topic_partitions if found else ():
        if place.error is not None:
            raise named(kafka, f"{place.topic}-{place.partition} of group {group}", place.error, 0.0)
        if place.offset >= 0:
            result.setdefault(place.topic, {})[place.partition] = place.offset
    return result


def _ask(kafka: KafkaProperties, group: str, ask: Callable[[AdminClient, float], Any]) -> Any:
    """The answer; None when there is no such group. On a new cluster its coordinator has to be set up first."""
    passing: ClientError | None = None
    for _ in patience(TIMEOUT_S):
        try:
            return answer(kafka, ask)
        except KafkaException as error:
            passing = error.args[0]
            if passing.code() == ClientError.GROUP_ID_NOT_FOUND:
                return None
            if passing.code() not in _PASSING:
                break
    assert passing is not None
    raise named(kafka, f"group {group}", passing, TIMEOUT_S)
