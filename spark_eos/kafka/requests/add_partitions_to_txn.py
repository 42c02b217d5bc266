"""AddPartitionsToTxn and AddOffsetsToTxn: announce partitions and groups to the transaction's coordinator.

Only for transaction.version 0 and 1; with 2, partition leaders and group coordinators do it themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.codes import COORDINATOR_MOVED
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    Api,
    Int16,
    Int32,
    Record,
    Request,
    String,
    array,
    record,
)

R = TypeVar("R", bound=Record)


class AddedPartition(Record):
    partition_index: Int32
    partition_error_code: Int16


class AddedTopic(Record):
    name: String
    partitions: tuple[AddedPartition, ...]


class AddPartitionsToTxnResponse(Record):
    throttle_time_ms: Int32
    results: tuple[AddedTopic, ...]


class AddOffsetsToTxnResponse(Record):
    throttle_time_ms: Int32
    error_code: Int16


#: Version 3 is the last one for clients.
ADD_PARTITIONS_TO_TXN = Request(
    "AddPartitionsToTxn",
    24,
    3,
    3,
    asks=record(
        transactional_id=STRING,
        producer_id=INT64,
        producer_epoch=INT16,
        topics=array(record(name=STRING, partitions=array(INT32))),
    ),
    answers=AddPartitionsToTxnResponse,
)
#: The version by which brokers verify a transaction with its coordinator before they append its first batch. Brokers
#: that have it, since Kafka 3.6, accept no batch that would begin a hanging transaction (KIP-890).
VERIFY_ADDITION = Api("AddPartitionsToTxn", 24, 4, 1 << 14)

ADD_OFFSETS_TO_TXN = Request(
    "AddOffsetsToTxn",
    25,
    3,
    4,
    asks=record(transactional_id=STRING, producer_id=INT64, producer_epoch=INT16, group_id=STRING),
    answers=AddOffsetsToTxnResponse,
)


def add_partitions_to_txn(
    client: BrokerClient, transaction: tuple[str, int, int], partitions: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, int] | None:
    """Add partitions to a transaction, (transactional id, producer id, epoch), with one request. Returns Kafka's error
    code for each partition; None without a response within ``timeout_s``. Adding a partition twice does no harm."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    values = {"topics": [{"name": topic, "partitions": numbers} for topic, numbers in topics.items()]}
    answer = _ask(client, ADD_PARTITIONS_TO_TXN, transaction, values, timeout_s)
    if answer is None or isinstance(answer, int):
        return None if answer is None else {(t, p): answer for t, numbers in topics.items() for p in numbers}
    codes = {(row.name, p.partition_index): p.partition_error_code for row in answer.results for p in row.partitions}
    if COORDINATOR_MOVED & set(codes.values()):
        client.forget([transaction[0]])
    return codes


def add_offsets_to_txn(
    client: BrokerClient, transaction: tuple[str, int, int], group: str, timeout_s: float
) -> int | None:
    """Add a group's offsets to a transaction with one request. Returns Kafka's error code; None without a response
    within ``timeout_s``."""
    answer = _ask(client, ADD_OFFSETS_TO_TXN, transaction, {"group_id": group}, timeout_s)
    code = answer if answer is None or isinstance(answer, int) else answer.error_code
    if code in COORDINATOR_MOVED:
        client.forget([transaction[0]])
    return code


def _ask(
    client: BrokerClient,
    request: Request[R],
    transaction: tuple[str, int, int],
    values: Mapping[str, Any],
    timeout_s: float,
) -> R | int | None:
    """Return the coordinator's response, or the error code with which it could not be found."""
    name, producer_id, epoch = transaction
    node, code = client.coordinator(name, timeout_s)
    if node is None:
        return code
    own = {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
    answer = client.ask(node, request, own | dict(values), timeout_s)
    if answer is None:
        client.forget([name])
    return answer
