"""TxnOffsetCommit: the offsets of a consumer group, as part of a transaction."""

from __future__ import annotations

from collections.abc import Mapping

from spark_eos.kafka.codes import COORDINATOR_MOVED, OK
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.metadata import CoordinatorKind
from spark_eos.kafka.net.schema import INT16, INT32, INT64, NULLABLE_STRING, STRING, Request, array, record

_PARTITION = record(
    partition_index=INT32, committed_offset=INT64, committed_leader_epoch=INT32, committed_metadata=NULLABLE_STRING
)
#: Version 5 is the first one that adds the group to its transaction by itself (KIP-890).
TXN_OFFSET_COMMIT = Request(
    "TxnOffsetCommit",
    28,
    5,
    5,
    asks=record(
        transactional_id=STRING,
        group_id=STRING,
        producer_id=INT64,
        producer_epoch=INT16,
        generation_id=INT32,
        member_id=STRING,
        group_instance_id=NULLABLE_STRING,
        topics=array(record(name=STRING, partitions=array(_PARTITION))),
    ),
    answers=record(
        throttle_time_ms=INT32,
        topics=array(record(name=STRING, partitions=array(record(partition_index=INT32, error_code=INT16)))),
    ),
)


def txn_offset_commit(
    client: BrokerClient,
    transaction: tuple[str, int, int],
    group: str,
    offsets: Mapping[str, Mapping[int, int]],
    seconds: float,
) -> int | None:
    """Offsets by topic and partition, with the transaction (transactional id, producer id, epoch): Kafka's error code,
    that of the group or of any of the partitions; None where a request has no answer within ``seconds``."""
    found, errors = client.coordinators([group], seconds, CoordinatorKind.GROUP)
    if not found:
        return errors.get(group)
    (node,) = found
    name, producer_id, epoch = transaction
    values = {
        "transactional_id": name,
        "group_id": group,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [
            {"name": topic, "partitions": [_of(partition, offset) for partition, offset in places.items()]}
            for topic, places in offsets.items()
        ],
    }
    answer = client.ask(node, TXN_OFFSET_COMMIT, values, seconds)
    codes = () if answer is None else [p.error_code for topic in answer.topics for p in topic.partitions]
    wrong: int = next((code for code in codes if code != OK), OK)
    if answer is None or wrong in COORDINATOR_MOVED:
        client.forget([group], CoordinatorKind.GROUP)
    return None if answer is None else wrong


def _of(partition: int, offset: int) -> dict[str, object]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
