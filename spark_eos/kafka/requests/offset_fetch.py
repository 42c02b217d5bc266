"""OffsetFetch: the committed offsets of a consumer group."""

from __future__ import annotations

from spark_eos.kafka.net.schema import (
    BOOL,
    INT32,
    STRING,
    Int16,
    Int32,
    Int64,
    NullableString,
    Record,
    Request,
    Some,
    String,
    array,
    record,
)


class FetchedOffset(Record):
    """A group's offset in a partition. ``committed_offset`` is -1 if there is none."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32
    metadata: NullableString
    error_code: Int16


class FetchedTopic(Record):
    name: String
    partitions: tuple[FetchedOffset, ...]


class FetchedGroup(Record):
    group_id: String
    topics: tuple[FetchedTopic, ...]
    error_code: Int16


class OffsetFetchResponse(Record):
    throttle_time_ms: Int32
    groups: Some[FetchedGroup]


#: Since Kafka 3.0. With ``require_stable``, the code is UNSTABLE_OFFSET_COMMIT while an open transaction may commit
#: newer offsets (KIP-447).
OFFSET_FETCH = Request(
    "OffsetFetch",
    9,
    8,
    8,
    asks=record(
        groups=array(record(group_id=STRING, topics=array(record(name=STRING, partition_indexes=array(INT32))))),
        require_stable=BOOL,
    ),
    answers=OffsetFetchResponse,
)
