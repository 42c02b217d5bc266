"""Kafka's error codes: named, and classified once for every kind of request.

The names and numbers are Kafka's own (org.apache.kafka.common.protocol.Errors). A code that is in none of the sets for
its kind of request is final.
"""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """The error codes of the requests in this package."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    LISTENER_NOT_FOUND = 72
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FENCED_MEMBER_EPOCH = 110
    STALE_MEMBER_EPOCH = 113
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129


OK = Code.NONE

#: This user lacks a right; the name says which.
UNAUTHORIZED = frozenset(
    {
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

#: Coordinators: it is loading, not available, or another broker. Retry after looking it up anew.
COORDINATOR_MOVED = frozenset({Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})
#: Coordinators: retry. 51: another change of the transaction is under way.
COORDINATOR_RETRIES = COORDINATOR_MOVED | {
    Code.REQUEST_TIMED_OUT,
    Code.NETWORK_EXCEPTION,
    Code.CONCURRENT_TRANSACTIONS,
}
#: Transactional producers: another producer has taken the transactional id.
FENCED = frozenset({Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH})
#: Transactional producers: the transaction was ended, by its timeout or by another client; or the coordinator has
#: forgotten the id, as it does after transactional.id.expiration.ms (seven days) without use.
TRANSACTION_GONE = frozenset(
    {
        Code.INVALID_PRODUCER_ID_MAPPING,
        Code.UNKNOWN_PRODUCER_ID,
        Code.INVALID_TXN_STATE,
        Code.TRANSACTION_ABORTABLE,
    }
)

#: Leaders of partitions: leadership moves, or the broker has just started; the same or another one may answer soon.
LEADER_MOVED = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,  # for a moment, by a leader that has just started
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REPLICA_NOT_AVAILABLE,
        Code.NETWORK_EXCEPTION,
        Code.KAFKA_STORAGE_ERROR,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.UNKNOWN_TOPIC_ID,
    }
)
#: Produce: the broker may take the batch later, or has taken it and does not know whether the replicas have.
PRODUCE_RETRIES = (
    LEADER_MOVED
    | COORDINATOR_RETRIES
    | {Code.NOT_ENOUGH_REPLICAS, Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Code.THROTTLING_QUOTA_EXCEEDED}
)
#: Produce: the leader refused the batch before it could write it, so it is certain that the batch is not in the log.
#: Retry.
NOT_APPENDED = COORDINATOR_MOVED | {
    Code.CONCURRENT_TRANSACTIONS,
    Code.NOT_ENOUGH_REPLICAS,
    Code.THROTTLING_QUOTA_EXCEEDED,
}
#: Produce: the broker rejects the batch for its rows or its size, and will reject it again. A timestamp that is too far
#: ahead is not among them: a later attempt, or another clock, may succeed.
REFUSED_FOR_GOOD = frozenset({Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE, Code.INVALID_RECORD})
#: Produce: the topic, or a segment of its log, takes no batch of this size.
TOO_LARGE = frozenset({Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE})
#: Produce: a row of the batch is at fault.
ABOUT_THE_ROWS = frozenset(
    {Code.INVALID_RECORD, Code.INVALID_TIMESTAMP, Code.UNSUPPORTED_COMPRESSION_TYPE, Code.POLICY_VIOLATION}
)
#: ListOffsets: a new leader may know less than there is, until its followers have caught up (KIP-207).
_OFFSET_RETRIES = LEADER_MOVED | {Code.REQUEST_TIMED_OUT, Code.OFFSET_NOT_AVAILABLE}
#: Fetch: brokers have no other code for a failure of remote storage (KIP-405).
FETCH_RETRIES = _OFFSET_RETRIES | {Code.UNKNOWN_SERVER_ERROR}
#: Fetch by a topic's id: the broker has no log of that topic, or not yet.
ANOTHER_TOPIC = frozenset({Code.UNKNOWN_TOPIC_ID, Code.INCONSISTENT_TOPIC_ID})

#: Metadata: this broker knows no such topic.
UNKNOWN_TOPIC = frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID})
#: Requests about the cluster, its topics and groups, except requests to leaders: retry.
ADMIN_RETRIES = COORDINATOR_RETRIES | {
    Code.BROKER_NOT_AVAILABLE,
    Code.NOT_CONTROLLER,
    Code.UNSTABLE_OFFSET_COMMIT,
    Code.THROTTLING_QUOTA_EXCEEDED,
}
#: Requests about topics, to leaders and other brokers: retry.
TOPIC_RETRIES = _OFFSET_RETRIES | ADMIN_RETRIES


def name_of(code: int) -> str:
    """Return Kafka's name for a code, such as ``NOT_COORDINATOR``; ``ERROR_150`` for one that is not known here."""
    try:
        return Code(code).name
    except ValueError:
        return f"ERROR_{code}"


_MEANINGS = {
    Code.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "fewer replicas are in sync than min.insync.replicas asks for",
    Code.LEADER_NOT_AVAILABLE: "the partition has no leader",
    Code.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator has just started",
    Code.CONCURRENT_TRANSACTIONS: "an earlier transaction is still being ended",
    Code.THROTTLING_QUOTA_EXCEEDED: "this user's quota is used up",
}


def meaning_of(code: int) -> str:
    """Return Kafka's name for a code, with a few words of explanation if brokers may return it for long."""
    words = next((text for known, text in _MEANINGS.items() if known == code), "")
    return f"{name_of(code)}: {words}" if words else name_of(code)
