"""Requests as kafka-python reads them, whose codec shares nothing with ours."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from kafka.protocol.admin.configs import DescribeConfigsRequest
from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.admin.topics import CreateTopicsRequest
from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import (
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

from spark_eos.kafka import requests
from spark_eos.kafka.net.metadata import FIND_COORDINATOR, METADATA, NO_ID
from spark_eos.kafka.net.schema import NO_TAGS
from spark_eos.kafka.requests.add_partitions_to_txn import ADD_OFFSETS_TO_TXN, ADD_PARTITIONS_TO_TXN
from spark_eos.kafka.requests.create_topics import CREATE_TOPICS
from spark_eos.kafka.requests.describe_configs import DESCRIBE_CONFIGS
from spark_eos.kafka.requests.describe_groups import DESCRIBE_GROUPS
from spark_eos.kafka.requests.describe_producers import DESCRIBE_PRODUCERS
from spark_eos.kafka.requests.describe_transactions import DESCRIBE_TRANSACTIONS
from spark_eos.kafka.requests.init_producer_id import INIT_PRODUCER_ID, INIT_PRODUCER_ID_TWO_PHASE
from spark_eos.kafka.requests.list_offsets import LIST_OFFSETS
from spark_eos.kafka.requests.list_transactions import LIST_TRANSACTIONS, LIST_TRANSACTIONS_BY_PATTERN
from spark_eos.kafka.requests.offset_commit import OFFSET_COMMIT
from spark_eos.kafka.requests.offset_delete import OFFSET_DELETE
from spark_eos.kafka.requests.offset_fetch import OFFSET_FETCH
from spark_eos.kafka.requests.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from spark_eos.kafka.requests.txn_offset_commit import TXN_OFFSET_COMMIT


class OffsetDeleteRequest(ApiMessage):
    """Known to that codec by its name; it has no class for it."""


LONG = "a name that is not ascii: töpic " * 9

#: A producer that is asked for, one that has a transaction open, and offsets that are to be committed.
WANTED = {"transactional_id": LONG, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
OPEN = {"transactional_id": LONG, "producer_id": 1 << 40, "producer_epoch": 7}
OFFSET = {"partition_index": 3, "committed_offset": 1 << 50, "committed_leader_epoch": -1, "committed_metadata": ""}
OFFSETS = {
    "group_id": LONG,
    "member_id": "",
    "group_instance_id": None,
    "topics": [{"name": "t", "partitions": [OFFSET]}],
}
TOPIC = {"name": "t", "num_partitions": 8, "replication_factor": -1, "assignments": []}

CASES = [
    (
        METADATA,
        MetadataRequest,
        {
            "topics": [{"topic_id": NO_ID, "name": LONG}, {"topic_id": NO_ID, "name": "b"}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
    ),
    (
        METADATA,
        MetadataRequest,
        {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False},
    ),
    (FIND_COORDINATOR, FindCoordinatorRequest, {"key_type": 1, "coordinator_keys": [LONG, "b"]}),
    (INIT_PRODUCER_ID, InitProducerIdRequest, WANTED),
    (
        INIT_PRODUCER_ID_TWO_PHASE,
        InitProducerIdRequest,
        WANTED | {"enable2_pc": True, "keep_prepared_txn": False},
    ),
    (TXN_OFFSET_COMMIT, TxnOffsetCommitRequest, OPEN | OFFSETS | {"generation_id": -1}),
    (
        ADD_PARTITIONS_TO_TXN,
        AddPartitionsToTxnRequest,
        OPEN | {"topics": [{"name": "t", "partitions": [0, 5]}, {"name": LONG, "partitions": [3]}]},
    ),
    (ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest, OPEN | {"group_id": "g"}),
    (
        LIST_OFFSETS,
        ListOffsetsRequest,
        {
            "replica_id": -1,
            "isolation_level": 1,
            "topics": [
                {"name": "t", "partitions": [{"partition_index": 9, "current_leader_epoch": -1, "timestamp": -2}]}
            ],
        },
    ),
    (
        OFFSET_FOR_LEADER_EPOCH,
        OffsetForLeaderEpochRequest,
        {
            "replica_id": -1,
            "topics": [
                {"topic": LONG, "partitions": [{"partition": 9, "current_leader_epoch": -1, "leader_epoch": 1 << 30}]}
            ],
        },
    ),
    (OFFSET_COMMIT, OffsetCommitRequest, OFFSETS | {"generation_id_or_member_epoch": -1}),
    (
        OFFSET_FETCH,
        OffsetFetchRequest,
        {
            "groups": [{"group_id": "g", "topics": [{"name": LONG, "partition_indexes": [0, 1]}]}],
            "require_stable": True,
        },
    ),
    (
        OFFSET_DELETE,
        OffsetDeleteRequest,
        {"group_id": LONG, "topics": [{"name": "t", "partitions": [{"partition_index": 3}, {"partition_index": 0}]}]},
    ),
    (DESCRIBE_GROUPS, DescribeGroupsRequest, {"groups": ["g", LONG], "include_authorized_operations": False}),
    (DESCRIBE_PRODUCERS, DescribeProducersRequest, {"topics": [{"name": "t", "partition_indexes": [0, 5]}]}),
    (DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest, {"transactional_ids": ["a", LONG]}),
    (LIST_TRANSACTIONS, ListTransactionsRequest, {"state_filters": ["Ongoing"], "producer_id_filters": [1, 1 << 40]}),
    (
        LIST_TRANSACTIONS_BY_PATTERN,
        ListTransactionsRequest,
        {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": "a.*"},
    ),
    (
        DESCRIBE_CONFIGS,
        DescribeConfigsRequest,
        {
            "resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": None}],
            "include_synonyms": False,
            "include_documentation": False,
        },
    ),
    (
        CREATE_TOPICS,
        CreateTopicsRequest,
        {
            "topics": [TOPIC | {"configs": [{"name": "cleanup.policy", "value": "compact"}]}],
            "timeout_ms": 4000,
            "validate_only": False,
        },
    ),
]


@pytest.mark.parametrize(("request_", "theirs", "values"), CASES, ids=lambda case: getattr(case, "name", ""))
def test_another_codec_reads_the_same_and_writes_it_back(request_, theirs, values):
    """Every field, in every version that is said to be the same."""
    for version in range(request_.first, request_.last + 1):
        head = struct.pack(">hhih", request_.api, version, 7, 2) + b"me" + NO_TAGS * request_.flexible
        data = head + request_.asks.write(values)
        read = theirs.decode(data, version=version, header=True)
        assert read.encode(version=version, header=True) == data
        for name, value in values.items():
            found = getattr(read, f"v3_and_below_{name}" if request_ is ADD_PARTITIONS_TO_TXN else name)
            assert len(found) == len(value) if isinstance(value, list) else found == value


def test_a_request_with_a_field_too_few_is_a_mistake_of_ours():
    """It would be read as another request."""
    with pytest.raises(ValueError, match="coordinator_keys"):
        FIND_COORDINATOR.asks.write({"key_type": 1})


def test_requests_are_given_the_client_that_they_ask():
    """They look up none by its properties, so that whoever asks knows which connections are used."""
    files = list(Path(requests.__file__).parent.glob("*.py"))
    assert len(files) > 20
    assert [file.name for file in files if "broker_client" in file.read_text()] == []
