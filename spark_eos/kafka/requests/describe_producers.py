"""DescribeProducers: who writes to a partition, and where the open transaction of each begins there."""

from __future__ import annotations

from spark_eos.kafka.codes import OK, UNAUTHORIZED
from spark_eos.kafka.errors import unreadable
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.schema import INT16, INT32, INT64, NULLABLE_STRING, STRING, Record, Request, array, record

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
    leader = client.leader(topic, partition)
    if leader is None:
        return []
    answer = client.ask(leader, DESCRIBE_PRODUCERS, {"topics": [{"name": topic, "partition_indexes": [partition]}]})
    found = None if answer is None else answer.topics[0].partitions[0]
    if found is not None and found.error_code in UNAUTHORIZED:
        raise unreadable(topic, client.properties)
    if found is None or found.error_code != OK:
        client.forget_leader(topic, partition)
        return []
    producers: list[Record] = found.active_producers
    return producers
