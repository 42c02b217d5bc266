"""ListGroups: a broker tells of the groups that it coordinates, of whatever type."""

from __future__ import annotations

from spark_eos.kafka.net.schema import INT16, INT32, STRING, Request, array, record

#: Since Kafka 3.8 (KIP-848) with the type of each group: "classic", "consumer", "share", "streams", or a later one.
#: There is no filter by name.
LIST_GROUPS = Request(
    "ListGroups",
    16,
    5,
    5,
    asks=record(states_filter=array(STRING), types_filter=array(STRING)),
    answers=record(
        throttle_time_ms=INT32,
        error_code=INT16,
        groups=array(record(group_id=STRING, protocol_type=STRING, group_state=STRING, group_type=STRING)),
    ),
)
