"""OffsetDelete: delete committed offsets of some partitions of a consumer group without members."""

from __future__ import annotations

from spark_eos.kafka.net.schema import (
    FIXED_STRING,
    INT32,
    FixedString,
    Int16,
    Int32,
    Record,
    Request,
    fixed_array,
    fixed_record,
)

_ASKED = fixed_record(partition_index=INT32)


class DeletedPartition(Record, flexible=False):
    partition_index: Int32
    error_code: Int16


class DeletedTopic(Record, flexible=False):
    name: FixedString
    partitions: tuple[DeletedPartition, ...]


class OffsetDeleteResponse(Record, flexible=False):
    error_code: Int16
    throttle_time_ms: Int32
    topics: tuple[DeletedTopic, ...]


#: Since Kafka 2.4 (KIP-496), in a version that is not flexible. It goes to the group's coordinator. If the
#: group has members, the code is NON_EMPTY_GROUP or, by partition, GROUP_SUBSCRIBED_TO_TOPIC. A partition without a
#: committed offset is no error.
OFFSET_DELETE = Request(
    "OffsetDelete",
    47,
    0,
    0,
    asks=fixed_record(
        group_id=FIXED_STRING,
        topics=fixed_array(fixed_record(name=FIXED_STRING, partitions=fixed_array(_ASKED))),
    ),
    answers=OffsetDeleteResponse,
    flexible=False,
)
