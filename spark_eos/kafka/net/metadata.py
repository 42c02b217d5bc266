"""The requests Metadata and FindCoordinator."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Self

from spark_eos.kafka.codes import OK
from spark_eos.kafka.net.schema import (
    BOOL,
    INT8,
    NULLABLE_STRING,
    STRING,
    UUID,
    Bool,
    FieldReader,
    Int16,
    Int32,
    NullableString,
    Record,
    Request,
    String,
    Uuid,
    array,
    record,
)

NO_ID = bytes(16)


class BrokerAddress(Record):
    node_id: Int32
    host: String
    port: Int32
    rack: NullableString

    @classmethod
    def read(cls, fields: FieldReader) -> Self:
        record = super().read(fields)
        _check(record.node_id, record.host)
        return record


class DescribedPartition(Record):
    """Metadata of a partition. ``leader_id`` is negative where the partition has no leader."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    replica_nodes: tuple[Int32, ...]
    isr_nodes: tuple[Int32, ...]
    offline_replicas: tuple[Int32, ...]


class DescribedTopic(Record):
    """Metadata of a topic. ``topic_authorized_operations``: a bit for each operation that this user may do; -2^31 if it
    was not requested."""

    error_code: Int16
    name: String
    topic_id: Uuid
    is_internal: Bool
    partitions: tuple[DescribedPartition, ...]
    topic_authorized_operations: Int32


class MetadataResponse(Record):
    throttle_time_ms: Int32
    brokers: tuple[BrokerAddress, ...]
    cluster_id: NullableString
    controller_id: Int32
    topics: tuple[DescribedTopic, ...]


#: Since Kafka 3.0. For None instead of topics, the response has all that this user may describe.
METADATA = Request(
    "Metadata",
    3,
    12,
    12,
    asks=record(
        topics=array(record(topic_id=UUID, name=NULLABLE_STRING)),
        allow_auto_topic_creation=BOOL,
        include_topic_authorized_operations=BOOL,
    ),
    answers=MetadataResponse,
)


def about_topics(topics: Sequence[str] | None) -> dict[str, Any]:
    """Return a Metadata request for these topics, or for all (None)."""
    named = None if topics is None else [{"topic_id": NO_ID, "name": name} for name in topics]
    return {"topics": named, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}


def _check(node: int, host: str) -> None:
    """Raise IndexError for a negative id, as `BrokerClient` numbers the bootstrap servers from -1 down, and for a host
    with a NUL, which TLS and the operating system take for different hosts."""
    if node < 0 or not host or not host.isprintable():
        raise IndexError(f"broker {node} cannot be one")


class CoordinatorKind(IntEnum):
    """The kinds of coordinators that FindCoordinator knows, by Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorAddress(Record):
    """The coordinator of a transactional id or group, ``key``; with an error code, the other fields have no meaning."""

    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: NullableString

    @classmethod
    def read(cls, fields: FieldReader) -> Self:
        record = super().read(fields)
        if record.error_code == OK:
            _check(record.node_id, record.host)
        return record


class FindCoordinatorResponse(Record):
    throttle_time_ms: Int32
    coordinators: tuple[CoordinatorAddress, ...]


#: Since Kafka 3.0: many keys at once (KIP-699).
FIND_COORDINATOR = Request(
    "FindCoordinator",
    10,
    4,
    4,
    asks=record(key_type=INT8, coordinator_keys=array(STRING)),
    answers=FindCoordinatorResponse,
)
