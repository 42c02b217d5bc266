"""DescribeProducers: who writes to a partition, and where the open transaction of each begins there."""

from __future__ import annotations

from collections.abc import Iterable

from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.codes import OK, UNAUTHORIZED
from spark_eos.kafka.errors import unreadable
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.schema import INT16, INT32, INT64, NULLABLE_STRING, STRING, Record, Request, array, record
from spark_eos.topic_partition import TopicPartition

_PRODUCER = record(
    producer_id=INT64,
    producer_epoch=INT32,
    last_sequence=INT32,
    last_timestamp=INT64,
    coordinator_epoch=INT32,
    current_txn_start_offset=INT64,
)
DESCRIBE_PRODUCERS = Request(
    "DescribeProducers",
    61,
    0,
    0,
    asks=record(topics=array(record(name=STRING, partition_indexes=array(INT32)))),
    answers=record(
        throttle_time_ms=INT32,
        topics=array(
            record(
                name=STRING,
                partitions=array(
                    record(
                        partition_index=INT32,
                        error_code=INT16,
                        error_message=NULLABLE_STRING,
                        active_producers=array(_PRODUCER),
                    )
                ),
            )
        ),
    ),
)


def describe_producers(client: BrokerClient, topic: str, partition: int) -> list[Record]:
    """The producers of a partition, by its leader; none without an answer. ``current_txn_start_offset`` is -1 where
    nothing is open. Raises TopicError (EOS_TOPIC_UNAUTHORIZED) without the right to read the topic."""
    return describe_each(client, [(topic, partition)]).get((topic, partition), [])


def open_begins(producers: Iterable[Record]) -> dict[tuple[int, int], int]:
    """By (producer id, epoch), the offset at which the open transaction of a partition's producer begins; those that
    have none open are left out."""
    return {
        (producer.producer_id, producer.producer_epoch): producer.current_txn_start_offset
        for producer in producers
        if producer.current_txn_start_offset >= 0
    }


def open_lasts(producers: Iterable[Record]) -> dict[tuple[int, int], int]:
    """By (producer id, epoch), the sequence number of the last record of the open transaction; those that have none
    open, or whose leader does not know it, are left out."""
    return {
        (producer.producer_id, producer.producer_epoch): producer.last_sequence
        for producer in producers
        if producer.current_txn_start_offset >= 0 and producer.last_sequence >= 0
    }


def describe_each(client: BrokerClient, places: Iterable[TopicPartition]) -> dict[TopicPartition, list[Record]]:
    """The same for partitions, (topic, number), by one request to each leader; those without an answer are left out."""
    asked: dict[int, dict[str, list[int]]] = {}
    wanted = set(places)
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
    found: dict[TopicPartition, list[Record]] = {}
    for answer in client.ask_each(values, DESCRIBE_PRODUCERS).values():
        for topic in answer.topics if answer is not None else ():
            for row in topic.partitions:
                if row.error_code in UNAUTHORIZED:
                    raise unreadable(topic.name, client.properties)
                if row.error_code == OK:
                    found[topic.name, row.partition_index] = row.active_producers
    for place in wanted - found.keys():
        client.forget_leader(*place)
    return found
