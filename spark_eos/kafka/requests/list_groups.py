"""ListGroups: the groups of all types that a broker coordinates."""

from __future__ import annotations

from spark_eos.kafka.net.schema import STRING, Int16, Int32, Record, Request, String, array, record


class ListedGroup(Record):
    group_id: String
    protocol_type: String
    group_state: String
    group_type: String


class ListGroupsResponse(Record):
    throttle_time_ms: Int32
    error_code: Int16
    groups: tuple[ListedGroup, ...]


#: Since Kafka 3.8 (KIP-848) with the type of each group: "classic", "consumer", "share", "streams", or a later one.
#: There is no filter by name.
LIST_GROUPS = Request(
    "ListGroups",
    16,
    5,
    5,
    asks=record(states_filter=array(STRING), types_filter=array(STRING)),
    answers=ListGroupsResponse,
)
