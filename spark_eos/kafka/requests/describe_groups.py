"""DescribeGroups and ConsumerGroupDescribe: who is in a group, by the two protocols of groups."""

from __future__ import annotations

from spark_eos.kafka.net.schema import (
    BOOL,
    BYTES,
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

#: Groups of the classic protocol. One that is not there is of state "Dead".
DESCRIBE_GROUPS = Request(
    "DescribeGroups",
    15,
    5,
    5,
    asks=record(groups=array(STRING), include_authorized_operations=BOOL),
    answers=record(
        throttle_time_ms=INT32,
        groups=some(
            record(
                error_code=INT16,
                group_id=STRING,
                group_state=STRING,
                protocol_type=STRING,
                protocol_data=STRING,
                members=array(
                    record(
                        member_id=STRING,
                        group_instance_id=NULLABLE_STRING,
                        client_id=STRING,
                        client_host=STRING,
                        member_metadata=BYTES,
                        member_assignment=BYTES,
                    )
                ),
                authorized_operations=INT32,
            )
        ),
    ),
)

_ASSIGNMENT = record(topic_partitions=array(record(topic_id=UUID, topic_name=STRING, partitions=array(INT32))))
#: Groups of the protocol of KIP-848, since Kafka 3.7; of others it answers GROUP_ID_NOT_FOUND.
CONSUMER_GROUP_DESCRIBE = Request(
    "ConsumerGroupDescribe",
    69,
    0,
    0,
    asks=record(group_ids=array(STRING), include_authorized_operations=BOOL),
    answers=record(
        throttle_time_ms=INT32,
        groups=some(
            record(
                error_code=INT16,
                error_message=NULLABLE_STRING,
                group_id=STRING,
                group_state=STRING,
                group_epoch=INT32,
                assignment_epoch=INT32,
                assignor_name=STRING,
                members=array(
                    record(
                        member_id=STRING,
                        instance_id=NULLABLE_STRING,
                        rack_id=NULLABLE_STRING,
                        member_epoch=INT32,
                        client_id=STRING,
                        client_host=STRING,
                        subscribed_topic_names=array(STRING),
                        subscribed_topic_regex=NULLABLE_STRING,
                        assignment=_ASSIGNMENT,
                        target_assignment=_ASSIGNMENT,
                    )
                ),
                authorized_operations=INT32,
            )
        ),
    ),
)
