"""ListOffsets: the first and last offsets of partitions, and offsets by timestamp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.properties import Isolation
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.schema import (
    INT8,
    INT32,
    INT64,
    STRING,
    Int16,
    Int32,
    Int64,
    Record,
    Request,
    String,
    array,
    record,
)

EARLIEST = -2
LATEST = -1
#: Timeout of one request, in seconds; after it, the leader is looked up anew.
_TRY_S = 4.0


class ListedOffset(Record):
    partition_index: Int32
    error_code: Int16
    timestamp: Int64
    offset: Int64
    leader_epoch: Int32


class ListOffsetsTopic(Record):
    name: String
    partitions: tuple[ListedOffset, ...]


class ListOffsetsResponse(Record):
    throttle_time_ms: Int32
    topics: tuple[ListOffsetsTopic, ...]


#: Since Kafka 2.8. A leader that has just been elected answers OFFSET_NOT_AVAILABLE until its high watermark holds
#: all that was acknowledged before (KIP-207); a Fetch does not wait for that.
LIST_OFFSETS = Request(
    "ListOffsets",
    2,
    6,
    7,
    asks=record(
        replica_id=INT32,
        isolation_level=INT8,
        topics=array(
            record(
                name=STRING,
                partitions=array(record(partition_index=INT32, current_leader_epoch=INT32, timestamp=INT64)),
            )
        ),
    ),
    answers=ListOffsetsResponse,
)


@dataclass(frozen=True)
class Found:
    """An offset. ``leader_epoch``: for `LATEST` that of the leader, else that of the record at the offset; -1 if
    unknown."""

    offset: int
    leader_epoch: int


def ask_offsets(
    client: BrokerClient, times: Mapping[TopicPartition, int], isolation: Isolation, timeout_s: float
) -> dict[TopicPartition, tuple[int, Found]]:
    """Return the offset of each partition for a timestamp in milliseconds, `EARLIEST` or `LATEST`, as (error code,
    offset), with one request to each leader, all at once.

    The code is REQUEST_TIMED_OUT without a response; after an error, the partition's leader is looked up anew. Raises
    ConnectionFailed if no broker answers.
    """
    leaders, errors = client.leaders(times, timeout_s)
    by_node: dict[int, dict[str, list[int]]] = {}
    for (topic, partition), node in leaders.items():
        by_node.setdefault(node, {}).setdefault(topic, []).append(partition)
    asked = {node: _values(topics, times, isolation) for node, topics in by_node.items()}
    results = {at: (error, Found(-1, -1)) for at, error in errors.items()}
    results |= {at: (int(Code.REQUEST_TIMED_OUT), Found(-1, -1)) for at in leaders}
    for answer in client.ask_each(asked, LIST_OFFSETS, min(timeout_s, _TRY_S)).values():
        for row in answer.topics if answer is not None else ():
            for p in row.partitions:
                results[row.name, p.partition_index] = p.error_code, Found(p.offset, p.leader_epoch)
    for at, (error, _) in results.items():
        if error:
            client.forget_leader(*at)
    return results


def _values(
    topics: Mapping[str, list[int]], times: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[str, object]:
    return {
        "replica_id": -1,
        "isolation_level": int(isolation == "read_committed"),
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": p, "current_leader_epoch": -1, "timestamp": times[topic, p]} for p in partitions
                ],
            }
            for topic, partitions in topics.items()
        ],
    }
