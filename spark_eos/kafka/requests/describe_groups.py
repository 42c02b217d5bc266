"""DescribeGroups and ConsumerGroupDescribe: the members of a group, by each of the two group protocols."""

from __future__ import annotations

from spark_eos.kafka.net.schema import (
    BOOL,
    STRING,
    Bytes,
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


class GroupMember(Record):
    """A member of a group of the classic protocol."""

    member_id: String
    group_instance_id: NullableString
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


class DescribedGroup(Record):
    """A group of the classic protocol. ``authorized_operations``: a bit for each operation that this user may do; -2^31
    if it was not requested."""

    error_code: Int16
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: tuple[GroupMember, ...]
    authorized_operations: Int32


class DescribeGroupsResponse(Record):
    throttle_time_ms: Int32
    groups: Some[DescribedGroup]


#: Groups of the classic protocol. A group that does not exist has the state "Dead".
DESCRIBE_GROUPS = Request(
    "DescribeGroups",
    15,
    5,
    5,
    asks=record(groups=array(STRING), include_authorized_operations=BOOL),
    answers=DescribeGroupsResponse,
)


class AssignedTopic(Record):
    topic_id: Uuid
    topic_name: String
    partitions: tuple[Int32, ...]


class MemberAssignment(Record):
    topic_partitions: tuple[AssignedTopic, ...]


class ConsumerGroupMember(Record):
    """A member of a group of the protocol of KIP-848."""

    member_id: String
    instance_id: NullableString
    rack_id: NullableString
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: tuple[String, ...]
    subscribed_topic_regex: NullableString
    assignment: MemberAssignment
    target_assignment: MemberAssignment


class DescribedConsumerGroup(Record):
    """A group of the protocol of KIP-848. ``authorized_operations``: see `DescribedGroup`."""

    error_code: Int16
    error_message: NullableString
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: tuple[ConsumerGroupMember, ...]
    authorized_operations: Int32


class ConsumerGroupDescribeResponse(Record):
    throttle_time_ms: Int32
    groups: Some[DescribedConsumerGroup]


#: Groups of the protocol of KIP-848, since Kafka 3.7; for other groups, the response is GROUP_ID_NOT_FOUND.
CONSUMER_GROUP_DESCRIBE = Request(
    "ConsumerGroupDescribe",
    69,
    0,
    0,
    asks=record(group_ids=array(STRING), include_authorized_operations=BOOL),
    answers=ConsumerGroupDescribeResponse,
)
