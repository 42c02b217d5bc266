"""TxnOffsetCommit: offsets of a consumer group, committed with a transaction."""

from __future__ import annotations

from collections.abc import Mapping

from spark_eos.kafka.codes import COORDINATOR_MOVED, OK
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.metadata import CoordinatorKind
from spark_eos.kafka.net.schema import INT16, INT32, INT64, NULLABLE_STRING, STRING, Request, record
from spark_eos.kafka.requests.add_partitions_to_txn import add_offsets_to_txn
from spark_eos.kafka.requests.committed_offsets import TOPICS, OffsetCommitResponse, as_topics, in_parts
from spark_eos.kafka.requests.partition_codes import partition_codes
from spark_eos.kafka.transactions import FENCING_END

_ASKS = record(
    transactional_id=STRING,
    group_id=STRING,
    producer_id=INT64,
    producer_epoch=INT16,
    generation_id=INT32,
    member_id=STRING,
    group_instance_id=NULLABLE_STRING,
    topics=TOPICS,
)
#: The first version that adds the group to the transaction by itself (KIP-890).
TXN_OFFSET_COMMIT = Request("TxnOffsetCommit", 28, 5, 5, _ASKS, OffsetCommitResponse)
#: To be sent after AddOffsetsToTxn.
TXN_OFFSET_COMMIT_PLAIN = Request("TxnOffsetCommit", 28, 3, 4, _ASKS, OffsetCommitResponse)


def txn_offset_commit(
    client: BrokerClient,
    transaction: tuple[str, int, int],
    group: str,
    offsets: Mapping[str, Mapping[int, int]],
    timeout_s: float,
    version: int,
) -> int | None:
    """Add offsets by topic and partition to a transaction, (transactional id, producer id, epoch), that this
    ``version`` of EndTxn will end. Returns Kafka's error code, of the group or of any of the partitions; None without a
    response about all of them, to each request within ``timeout_s``. After either, all may be added once more."""
    fencing = version >= FENCING_END
    added = OK if fencing else add_offsets_to_txn(client, transaction, group, timeout_s)
    if added != OK:
        return added
    node, code = client.coordinator(group, timeout_s, CoordinatorKind.GROUP)
    if node is None:
        return code
    name, producer_id, epoch = transaction
    values = {
        "transactional_id": name,
        "group_id": group,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
    }
    request = TXN_OFFSET_COMMIT if fencing else TXN_OFFSET_COMMIT_PLAIN
    for part in in_parts(offsets):
        answer = client.ask(node, request, values | {"topics": as_topics(part)}, timeout_s)
        codes = None if answer is None else partition_codes(answer.topics, part)
        wrong = None if codes is None else next((code for code in codes.values() if code != OK), OK)
        if wrong is None or wrong in COORDINATOR_MOVED:
            client.forget([group], CoordinatorKind.GROUP)
        if wrong != OK:
            return wrong
    return OK
