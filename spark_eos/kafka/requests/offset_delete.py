"""OffsetDelete: what a consumer group without members has committed for some partitions, and no more."""

from __future__ import annotations

from spark_eos.kafka.net.schema import FIXED_STRING as STRING
from spark_eos.kafka.net.schema import INT16, INT32, Request, fixed_array, fixed_record

_ASKED = fixed_record(partition_index=INT32)
_ANSWERED = fixed_record(partition_index=INT32, error_code=INT16)

#: Since Kafka 2.4 (KIP-496), in a version that is not flexible. The group's coordinator answers: NON_EMPTY_GROUP or,
#: by partition, GROUP_SUBSCRIBED_TO_TOPIC where the group has members. What is not committed is no error.
OFFSET_DELETE = Request(
    "OffsetDelete",
    47,
    0,
    0,
    asks=fixed_record(group_id=STRING, topics=fixed_array(fixed_record(name=STRING, partitions=fixed_array(_ASKED)))),
    answers=fixed_record(
        error_code=INT16,
        throttle_time_ms=INT32,
        topics=fixed_array(fixed_record(name=STRING, partitions=fixed_array(_ANSWERED))),
    ),
    flexible=False,
)
