"""OffsetForLeaderEpoch (KIP-101, KIP-320): where a leader epoch ends in a partition's log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.codes import Code
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.schema import INT32, STRING, Int16, Int32, Int64, Record, Request, String, array, record

#: An unknown epoch or offset.
UNKNOWN = -1
#: Timeout of one request, in seconds; after it, the leader is looked up anew.
_TRY_S = 4.0


class LeaderEpochEnd(Record):
    error_code: Int16
    partition: Int32
    leader_epoch: Int32
    end_offset: Int64


class LeaderEpochTopic(Record):
    topic: String
    partitions: tuple[LeaderEpochEnd, ...]


class OffsetForLeaderEpochResponse(Record):
    throttle_time_ms: Int32
    topics: tuple[LeaderEpochTopic, ...]


#: Since Kafka 2.8; a user needs DESCRIBE on the topic. Version 3 of Kafka 2.3 is the first with ``replica_id``, by
#: which brokers distinguish clients from replicas; 4 has the same fields. The leader answers from its list of epochs
#: and where each begins, which it extends when it becomes leader, and truncates with its log.
OFFSET_FOR_LEADER_EPOCH = Request(
    "OffsetForLeaderEpoch",
    23,
    4,
    4,
    asks=record(
        replica_id=INT32,
        topics=array(
            record(
                topic=STRING,
                partitions=array(record(partition=INT32, current_leader_epoch=INT32, leader_epoch=INT32)),
            )
        ),
    ),
    answers=OffsetForLeaderEpochResponse,
)


@dataclass(frozen=True)
class EpochEnd:
    """The end of a requested leader epoch. ``epoch``: the largest epoch of the log that is not larger than the
    requested one, or the requested one if the log begins with a larger one. ``end``: the first offset of a larger
    epoch, or the log's end. Both are `UNKNOWN` if all epochs of the log are smaller, or if it has none."""

    epoch: int
    end: int


NOTHING = EpochEnd(UNKNOWN, UNKNOWN)


def ask_epoch_ends(
    client: BrokerClient, epochs: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, tuple[int, EpochEnd]]:
    """Return where one leader epoch ends in each partition's log, as (error code, end), with one request to each
    leader, all at once.

    The code is REQUEST_TIMED_OUT without a response; after an error, the partition's leader is looked up anew. Raises
    ConnectionFailed if no broker answers.
    """
    leaders, errors = client.leaders(epochs, timeout_s)
    by_node: dict[int, dict[str, list[int]]] = {}
    for (topic, partition), node in leaders.items():
        by_node.setdefault(node, {}).setdefault(topic, []).append(partition)
    asked = {node: _values(topics, epochs) for node, topics in by_node.items()}
    results = {at: (error, NOTHING) for at, error in errors.items()}
    results |= {at: (int(Code.REQUEST_TIMED_OUT), NOTHING) for at in leaders}
    for answer in client.ask_each(asked, OFFSET_FOR_LEADER_EPOCH, min(timeout_s, _TRY_S)).values():
        for row in answer.topics if answer is not None else ():
            for p in row.partitions:
                results[row.topic, p.partition] = p.error_code, EpochEnd(p.leader_epoch, p.end_offset)
    for at, (error, _) in results.items():
        if error:
            client.forget_leader(*at)
    return results


def _values(topics: Mapping[str, list[int]], epochs: Mapping[TopicPartition, int]) -> dict[str, object]:
    return {
        "replica_id": -1,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {"partition": p, "current_leader_epoch": -1, "leader_epoch": epochs[topic, p]} for p in partitions
                ],
            }
            for topic, partitions in topics.items()
        ],
    }
