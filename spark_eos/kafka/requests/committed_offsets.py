"""A group's offsets, in the form that OffsetCommit and TxnOffsetCommit share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
#: Partitions of one request: a coordinator writes their offsets as one batch, and refuses them all where that is longer
#: than max.message.bytes of __consumer_offsets (1 MiB).
_MOST = 1000


class CommittedPartition(Record):
    partition_index: Int32
    error_code: Int16


class CommittedTopic(Record):
    name: String
    partitions: tuple[CommittedPartition, ...]


class OffsetCommitResponse(Record):
    throttle_time_ms: Int32
    topics: tuple[CommittedTopic, ...]


def in_parts(offsets: Mapping[str, Mapping[int, int]]) -> Iterator[dict[str, dict[int, int]]]:
    """Divide offsets by topic and partition into parts, one for each request."""
    every = [(topic, p, offset) for topic, of in offsets.items() for p, offset in of.items()]
    for begin in range(0, len(every), _MOST):
        part: dict[str, dict[int, int]] = {}
        for topic, p, offset in every[begin : begin + _MOST]:
            part.setdefault(topic, {})[p] = offset
        yield part


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
