"""Offsets of topics and groups, looked up with a plain consumer: nothing here is shared with the source or the sink."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from spark_eos.base.retry import retrying
from spark_eos.base.topic_partition import PartitionOffsets
from spark_eos.errors import EosError
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.librdkafka import librdkafka_config
from spark_eos.kafka.config.properties import Isolation, KafkaProperties
from spark_eos.kafka.errors import group_refusal, refusal

T = TypeVar("T")

_FINAL = {
    ClientError.TOPIC_AUTHORIZATION_FAILED,
    ClientError.GROUP_AUTHORIZATION_FAILED,
    ClientError.CLUSTER_AUTHORIZATION_FAILED,
    ClientError.TOPIC_EXCEPTION,
}
#: Errors of librdkafka for topics and partitions that the cluster does not have.
_UNKNOWN = {
    ClientError.UNKNOWN_TOPIC_OR_PART,
    ClientError._UNKNOWN_TOPIC,
    ClientError._UNKNOWN_PARTITION,
}
#: Seconds for which "unknown topic" is retried: a broker that has just started may return it for any topic.
_UNKNOWN_S = 1.0


class OffsetLookup:
    """Looks offsets up with one consumer, which joins no group. Every method raises ConnectionFailed, TopicError or
    KafkaError."""

    def __init__(self, isolation: Isolation, kafka: KafkaProperties, group: str | None, timeout_s: float) -> None:
        ours: dict[str, Any] = {"isolation.level": isolation, "enable.auto.commit": "false", "error_cb": self._remember}
        if group is not None:
            ours["group.id"] = group
        self._kafka, self._group, self._timeout_s = kafka, group, timeout_s
        self._last_error: str | None = None
        self._consumer = Consumer(librdkafka_config(kafka, "consumer", ours))

    def __enter__(self) -> OffsetLookup:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions of each topic."""
        return {topic: self._retried(topic, functools.partial(self._count, topic)) for topic in topics}

    def begins(self, partitions: Mapping[str, Iterable[int]]) -> PartitionOffsets:
        """Return the first offset that each partition still has."""
        return self._offsets(partitions, OFFSET_BEGINNING)

    def ends(self, partitions: Mapping[str, Iterable[int]]) -> PartitionOffsets:
        """Return the end of each partition, by this isolation, exclusive."""
        return self._offsets(partitions, OFFSET_END)

    def committed(self, partitions: Mapping[str, Iterable[int]], timeout_s: float | None = None) -> PartitionOffsets:
        """Return the committed offsets of the group, without partitions that have none. With ``read_committed``, waits
        for offsets that an open transaction is about to commit."""
        wanted = _places(partitions)
        offsets = self._retried(
            self._group or "", lambda left: self._consumer.committed(wanted, timeout=left), timeout_s, group_refusal
        )
        return _by_topic(p for p in offsets if p.offset >= 0)

    def compacted(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that are compacted, as far as this user may read their configuration."""
        admin = AdminClient(librdkafka_config(self._kafka, "producer"))
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        compacted = []
        for resource, answer in admin.describe_configs(resources, request_timeout=self._timeout_s).items():
            with contextlib.suppress(KafkaException, KeyError):
                if "compact" in (answer.result()["cleanup.policy"].value or ""):
                    compacted.append(resource.name)
        return compacted

    def _count(self, topic: str, left: float) -> int:
        described = self._consumer.list_topics(topic, timeout=left).topics[topic]
        if described.error is not None:
            raise KafkaException(described.error)
        return len(described.partitions)

    def _offsets(self, partitions: Mapping[str, Iterable[int]], which: int) -> PartitionOffsets:
        wanted = _places(partitions, which)
        topics = ", ".join(partitions)
        if not wanted:  # of a side that is a table
            return {}
        return _by_topic(self._retried(topics, lambda left: self._consumer.offsets_for_times(wanted, timeout=left)))

    def _retried(
        self,
        name: str,
        request: Callable[[float], T],
        timeout_s: float | None = None,
        refused: Callable[[str, str, int, float, str | None], EosError] = refusal,
    ) -> T:
        """Return the answer to a request about this name. ``refused``: makes the error."""
        began, timeout_s = time.monotonic(), timeout_s or self._timeout_s
        failure: ClientError | None = None
        for _ in retrying(timeout_s):
            left = began + timeout_s - time.monotonic()
            try:
                answer = request(max(0.1, left))
                failure = _first_error(answer)
            except KafkaException as error:
                failure = error.args[0]
            else:
                if failure is None:
                    return answer
            gone = failure.code() in _UNKNOWN and time.monotonic() - began > _UNKNOWN_S
            if gone or failure.code() in _FINAL:
                break
        assert failure is not None
        servers, why = self._kafka.bootstrap_servers, self._last_error or failure.str()
        raise refused(servers, name, _code(failure), time.monotonic() - began, why)

    def _remember(self, error: ClientError) -> None:
        if error.code() != ClientError._ALL_BROKERS_DOWN:  # says less than the errors around it
            self._last_error = error.str()


def _places(partitions: Mapping[str, Iterable[int]], offset: int = 0) -> list[TopicPartition]:
    return [TopicPartition(topic, p, offset) for topic, numbers in partitions.items() for p in numbers]


def _by_topic(partitions: Iterable[TopicPartition]) -> PartitionOffsets:
    result: PartitionOffsets = {}
    for p in partitions:
        result.setdefault(p.topic, {})[p.partition] = p.offset
    return result


def _first_error(answer: object) -> ClientError | None:
    partitions = answer if isinstance(answer, list) else []
    return next((p.error for p in partitions if p.error is not None), None)


def _code(error: ClientError) -> int:
    """Translate librdkafka's own error codes to Kafka's: a topic is missing, or no answer came in time."""
    if error.code() in _UNKNOWN:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    return error.code() if error.code() > 0 else Code.REQUEST_TIMED_OUT
