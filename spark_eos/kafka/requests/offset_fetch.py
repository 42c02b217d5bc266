"""OffsetFetch: what a consumer group has committed."""

from __future__ import annotations

from spark_eos.kafka.net.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    Request,
    array,
    record,
    some,
)

_PARTITION = record(
    partition_index=INT32,
    committed_offset=INT64,
    committed_leader_epoch=INT32,
    metadata=NULLABLE_STRING,
    error_code=INT16,
)
#: Since Kafka 3.0. With ``require_stable`` a group whose offsets an open transaction is about to change is answered
#: with UNSTABLE_OFFSET_COMMIT (KIP-447).
OFFSET_FETCH = Request(
    "OffsetFetch",
    9,
    8,
    8,
    asks=record(
        groups=array(record(group_id=STRING, topics=array(record(name=STRING, partition_indexes=array(INT32))))),
        require_stable=BOOL,
    ),
    answers=record(
        throttle_time_ms=INT32,
        groups=some(
            record(
                group_id=STRING,
                topics=array(record(name=STRING, partitions=array(_PARTITION))),
                error_code=INT16,
            )
        ),
    ),
)
