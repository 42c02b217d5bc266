"""DeleteGroups: consumer groups without members, with all that they have committed."""

from __future__ import annotations

from spark_eos.kafka.net.schema import INT16, INT32, STRING, Request, array, record

#: Since Kafka 2.4. The group's coordinator answers; a group with members is NON_EMPTY_GROUP.
DELETE_GROUPS = Request(
    "DeleteGroups",
    42,
    2,
    2,
    asks=record(groups_names=array(STRING)),
    answers=record(throttle_time_ms=INT32, results=array(record(group_id=STRING, error_code=INT16))),
)
