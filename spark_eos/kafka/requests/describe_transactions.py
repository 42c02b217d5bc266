"""DescribeTransactions: the state of transactional ids, by their coordinators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.schema import STRING, Int16, Int32, Int64, Record, Request, String, array, record


class TransactionTopic(Record):
    topic: String
    partitions: tuple[Int32, ...]


class TransactionState(Record):
    """The state of a transactional id. ``transaction_start_time_ms`` is -1 if no transaction is open."""

    error_code: Int16
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: tuple[TransactionTopic, ...]


class DescribeTransactionsResponse(Record):
    throttle_time_ms: Int32
    transaction_states: tuple[TransactionState, ...]


DESCRIBE_TRANSACTIONS = Request(
    "DescribeTransactions",
    65,
    0,
    0,
    asks=record(transactional_ids=array(STRING)),
    answers=DescribeTransactionsResponse,
)
#: Timeout for finding the coordinators, in seconds.
LOOK_UP_S = 10.0


def describe_transactions(client: BrokerClient, ids: Iterable[str]) -> list[TransactionState]:
    """Return the state, with an error code, of each transactional id whose coordinator answered."""
    coordinators, _ = client.coordinators(ids, LOOK_UP_S)
    return describe_at(client, coordinators)


def describe_at(client: BrokerClient, coordinators: Mapping[int, list[str]]) -> list[TransactionState]:
    """Return the state, with an error code, of transactional ids whose coordinators are known, ``{broker: ids}``."""
    asked = {node: {"transactional_ids": names} for node, names in coordinators.items()}
    states: list[TransactionState] = []
    for node, answer in client.ask_each(asked, DESCRIBE_TRANSACTIONS).items():
        if answer is None:
            client.forget(coordinators[node])
        else:
            states += answer.transaction_states
    return states
