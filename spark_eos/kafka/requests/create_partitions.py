"""CreatePartitions: more of them for a topic that is there."""

from __future__ import annotations

from spark_eos.kafka.net.schema import BOOL, INT16, INT32, NULLABLE_STRING, STRING, Request, array, record, some

#: Since Kafka 2.4. Any broker takes it, and asks the controller. A count that is not higher is INVALID_PARTITIONS.
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
    answers=record(
        throttle_time_ms=INT32,
        results=some(record(name=STRING, error_code=INT16, error_message=NULLABLE_STRING)),
    ),
)
