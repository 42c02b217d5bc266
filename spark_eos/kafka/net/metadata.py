"""What brokers say about where things are: Metadata, and FindCoordinator."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from spark_eos.kafka.net.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    UUID,
    Request,
    array,
    record,
)

NO_ID = bytes(16)

_PARTITION = record(
    error_code=INT16,
    partition_index=INT32,
    leader_id=INT32,
    leader_epoch=INT32,
    replica_nodes=array(INT32),
    isr_nodes=array(INT32),
    offline_replicas=array(INT32),
)

#: Since Kafka 3.0. Asked for no topics (None), it tells all that this user may see.
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
    answers=record(
        throttle_time_ms=INT32,
        brokers=array(record(node_id=INT32, host=STRING, port=INT32, rack=NULLABLE_STRING)),
        cluster_id=NULLABLE_STRING,
        controller_id=INT32,
        topics=array(
            record(
                error_code=INT16,
                name=NULLABLE_STRING,
                topic_id=UUID,
                is_internal=BOOL,
                partitions=array(_PARTITION),
                topic_authorized_operations=INT32,
            )
        ),
    ),
)


def about_topics(topics: Sequence[str] | None) -> dict[str, Any]:
    """What to ask for these topics, or for all (None)."""
    named = None if topics is None else [{"topic_id": NO_ID, "name": name} for name in topics]
    return {"topics": named, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}


class CoordinatorKind(IntEnum):
    """What FindCoordinator is asked for, by Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1


#: Since Kafka 3.0: many keys at once (KIP-699).
FIND_COORDINATOR = Request(
    "FindCoordinator",
    10,
    4,
    4,
    asks=record(key_type=INT8, coordinator_keys=array(STRING)),
    answers=record(
        throttle_time_ms=INT32,
        coordinators=array(
            record(key=STRING, node_id=INT32, host=STRING, port=INT32, error_code=INT16, error_message=NULLABLE_STRING)
        ),
    ),
)
