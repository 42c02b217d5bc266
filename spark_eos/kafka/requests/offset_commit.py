"""OffsetCommit: committed offsets of a consumer group, from a client that is not a member of it."""

from __future__ import annotations

from collections.abc import Mapping

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.codes import COORDINATOR_MOVED
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.metadata import CoordinatorKind
from spark_eos.kafka.net.schema import INT32, NULLABLE_STRING, STRING, Request, record
from spark_eos.kafka.requests.committed_offsets import TOPICS, OffsetCommitResponse, as_topics, in_parts
from spark_eos.kafka.requests.partition_codes import partition_codes

#: Since Kafka 2.4. From version 10 on, topics are named by id. The code for a group with members is UNKNOWN_MEMBER_ID.
OFFSET_COMMIT = Request(
    "OffsetCommit",
    8,
    8,
    9,
    asks=record(
        group_id=STRING,
        generation_id_or_member_epoch=INT32,
        member_id=STRING,
        group_instance_id=NULLABLE_STRING,
        topics=TOPICS,
    ),
    answers=OffsetCommitResponse,
)


def offset_commit(
    client: BrokerClient, group: str, offsets: Mapping[str, Mapping[int, int]], timeout_s: float
) -> dict[TopicPartition, int] | int | None:
    """Commit offsets for a group. Returns the error code of each partition; one error code if the group's coordinator
    could not be found; None without a response about all of them, to each request within ``timeout_s``."""
    node, code = client.coordinator(group, timeout_s, CoordinatorKind.GROUP)
    if node is None:
        return code
    values = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    every: dict[TopicPartition, int] = {}
    for part in in_parts(offsets):
        answer = client.ask(node, OFFSET_COMMIT, values | {"topics": as_topics(part)}, timeout_s)
        codes = None if answer is None else partition_codes(answer.topics, part)
        if codes is None or COORDINATOR_MOVED & set(codes.values()):
            client.forget([group], CoordinatorKind.GROUP)
            return codes
        every |= codes
    return every
