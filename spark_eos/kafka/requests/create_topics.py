"""CreateTopics."""

from __future__ import annotations

from spark_eos.kafka.net.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
    UUID,
    Request,
    array,
    record,
    some,
)

#: Since Kafka 2.8. Any broker takes it, and asks the controller.
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
    answers=record(
        throttle_time_ms=INT32,
        topics=some(
            record(
                {0: ("topic_config_error_code", INT16)},
                name=STRING,
                topic_id=UUID,
                error_code=INT16,
                error_message=NULLABLE_STRING,
                num_partitions=INT32,
                replication_factor=INT16,
                configs=array(
                    record(name=STRING, value=NULLABLE_STRING, read_only=BOOL, config_source=INT8, is_sensitive=BOOL)
                ),
            )
        ),
    ),
)
