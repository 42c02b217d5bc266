"""CreatePartitions: add partitions to a topic."""

from __future__ import annotations

from spark_eos.kafka.net.schema import (
    BOOL,
    INT32,
    STRING,
    Int16,
    Int32,
    NullableString,
    Record,
    Request,
    Some,
    String,
    array,
    record,
)


class CreatePartitionsResult(Record):
    name: String
    error_code: Int16
    error_message: NullableString


class CreatePartitionsResponse(Record):
    throttle_time_ms: Int32
    results: Some[CreatePartitionsResult]


#: Since Kafka 2.4. Any broker accepts it, and forwards it to the controller. The code for a count that is not higher
#: than the present one is INVALID_PARTITIONS.
CREATE_PARTITIONS = Request(
    "CreatePartitions",
    37,
    2,
    3,
    asks=record(
        topics=array(record(name=STRING, count=INT32, assignments=array(record(broker_ids=array(INT32))))),
        timeout_ms=INT32,
        validate_only=BOOL,
    ),
    answers=CreatePartitionsResponse,
)
