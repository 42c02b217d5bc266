"""DescribeProducers: the producers of a partition, and where the open transaction of each begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.codes import OK, UNAUTHORIZED
from spark_eos.kafka.errors import unreadable
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.schema import (
    INT32,
    STRING,
    Int16,
    Int32,
    Int64,
    NullableString,
    Record,
    Request,
    String,
    array,
    record,
)


class ActiveProducer(Record):
    """A producer of a partition. ``current_txn_start_offset`` is -1 where the producer has no open transaction."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32
    last_timestamp: Int64
    coordinator_epoch: Int32
    current_txn_start_offset: Int64


class DescribedProducers(Record):
    """The producers of one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableString
    active_producers: tuple[ActiveProducer, ...]


class DescribeProducersTopic(Record):
    name: String
    partitions: tuple[DescribedProducers, ...]


class DescribeProducersResponse(Record):
    throttle_time_ms: Int32
    topics: tuple[DescribeProducersTopic, ...]


DESCRIBE_PRODUCERS = Request(
    "DescribeProducers",
    61,
    0,
    0,
    asks=record(topics=array(record(name=STRING, partition_indexes=array(INT32)))),
    answers=DescribeProducersResponse,
)


def describe_producers(client: BrokerClient, topic: str, partition: int) -> Sequence[ActiveProducer]:
    """Return the producers of a partition, by its leader; empty without a response. Raises Unauthorized if this user
    may not read the topic."""
    return describe_each(client, [(topic, partition)]).get((topic, partition), ())


def open_begins(producers: Iterable[ActiveProducer]) -> dict[tuple[int, int], int]:
    """Return the first offset of each open transaction in a partition, by (producer id, epoch)."""
    return {
        (producer.producer_id, producer.producer_epoch): producer.current_txn_start_offset
        for producer in producers
        if producer.current_txn_start_offset >= 0
    }


def open_lasts(producers: Iterable[ActiveProducer]) -> dict[tuple[int, int], int]:
    """Return the sequence number of the last record of each open transaction in a partition, by (producer id, epoch);
    transactions for which the leader does not know it are left out."""
    return {
        (producer.producer_id, producer.producer_epoch): producer.last_sequence
        for producer in producers
        if producer.current_txn_start_offset >= 0 and producer.last_sequence >= 0
    }


def describe_each(
    client: BrokerClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Sequence[ActiveProducer]]:
    """Return the producers of several partitions, with one request to each leader; partitions without a response are
    left out.

    Raises Unauthorized if this user may not read a topic.
    """
    asked: dict[int, dict[str, list[int]]] = {}
    wanted = set(partitions)
    try:
        leaders, _ = client.leaders(wanted)
    except ConnectionFailed:
        return {}
    for (topic, partition), leader in sorted(leaders.items()):
        asked.setdefault(leader, {}).setdefault(topic, []).append(partition)
    values = {
        leader: {"topics": [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()]}
        for leader, topics in asked.items()
    }
    producers: dict[TopicPartition, Sequence[ActiveProducer]] = {}
    for answer in client.ask_each(values, DESCRIBE_PRODUCERS).values():
        for row in answer.topics if answer is not None else ():
            for p in row.partitions:
                if p.error_code in UNAUTHORIZED:
                    raise unreadable(row.name, client.bootstrap_servers)
                if p.error_code == OK:
                    producers[row.name, p.partition_index] = p.active_producers
    for at in wanted - producers.keys():
        client.forget_leader(*at)
    return producers
