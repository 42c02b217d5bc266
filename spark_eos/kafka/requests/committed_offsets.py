"""A group's offsets, in the form that OffsetCommit and TxnOffsetCommit share."""

from __future__ import annotations

from collections.abc import Mapping

from spark_eos.kafka.net.schema import (
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    Int16,
    Int32,
    Record,
    String,
    array,
    record,
)

_PARTITION = record(
    partition_index=INT32, committed_offset=INT64, committed_leader_epoch=INT32, committed_metadata=NULLABLE_STRING
)
#: The field of both requests.
TOPICS = array(record(name=STRING, partitions=array(_PARTITION)))


class CommittedPartition(Record):
    partition_index: Int32
    error_code: Int16


class CommittedTopic(Record):
    name: String
    partitions: tuple[CommittedPartition, ...]


class OffsetCommitResponse(Record):
    throttle_time_ms: Int32
    topics: tuple[CommittedTopic, ...]


def as_topics(offsets: Mapping[str, Mapping[int, int]]) -> list[dict[str, object]]:
    """Return offsets by topic and partition, in the form of `TOPICS`."""
    return [
        {"name": topic, "partitions": [_partition(p, offset) for p, offset in partitions.items()]}
        for topic, partitions in offsets.items()
    ]


def _partition(partition: int, offset: int) -> dict[str, object]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
