"""CreateTopics."""

from __future__ import annotations

from spark_eos.kafka.net.schema import (
    BOOL,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    Bool,
    Int8,
    Int16,
    Int32,
    NullableString,
    Record,
    Request,
    Some,
    String,
    Uuid,
    array,
    record,
)


class CreatedConfig(Record):
    name: String
    value: NullableString
    read_only: Bool
    config_source: Int8
    is_sensitive: Bool


class CreateTopicsResult(Record):
    name: String
    topic_id: Uuid
    error_code: Int16
    error_message: NullableString
    num_partitions: Int32
    replication_factor: Int16
    configs: tuple[CreatedConfig, ...]


class CreateTopicsResponse(Record):
    throttle_time_ms: Int32
    topics: Some[CreateTopicsResult]


#: Since Kafka 2.8. Any broker accepts it, and forwards it to the controller.
CREATE_TOPICS = Request(
    "CreateTopics",
    19,
    7,
    7,
    asks=record(
        topics=array(
            record(
                name=STRING,
                num_partitions=INT32,
                replication_factor=INT16,
                assignments=array(record(partition_index=INT32, broker_ids=array(INT32))),
                configs=array(record(name=STRING, value=NULLABLE_STRING)),
            )
        ),
        timeout_ms=INT32,
        validate_only=BOOL,
    ),
    answers=CreateTopicsResponse,
)
