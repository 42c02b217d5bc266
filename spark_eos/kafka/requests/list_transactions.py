"""ListTransactions: the transactional ids that each broker coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.codes import OK
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.schema import (
    INT64,
    NULLABLE_STRING,
    STRING,
    FieldType,
    Int16,
    Int32,
    Int64,
    Record,
    Request,
    String,
    array,
    record,
)

_API = 66
_FILTERS: dict[str, FieldType[Any]] = {"state_filters": array(STRING), "producer_id_filters": array(INT64)}


class ListedTransaction(Record):
    transactional_id: String
    producer_id: Int64
    transaction_state: String


class ListTransactionsResponse(Record):
    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: tuple[String, ...]
    transaction_states: tuple[ListedTransaction, ...]


LIST_TRANSACTIONS = Request("ListTransactions", _API, 0, 0, asks=record(**_FILTERS), answers=ListTransactionsResponse)
#: Since Kafka 4.1 (KIP-1152), with a pattern (RE2).
LIST_TRANSACTIONS_BY_PATTERN = Request(
    "ListTransactions",
    _API,
    2,
    2,
    asks=record(**_FILTERS, duration_filter=INT64, transactional_id_pattern=NULLABLE_STRING),
    answers=ListTransactionsResponse,
)


def ids_by_state(
    client: BrokerClient, pattern: str, states: Sequence[str], *, only_matching: bool
) -> list[tuple[str, str]] | None:
    """Return the transactional ids in these states that match the pattern (RE2), as (id, state). None if a broker did
    not answer. Brokers that do not support patterns list all in these states, or are left out: ``only_matching``."""
    values: dict[str, Any] = {"state_filters": list(states), "producer_id_filters": []}
    by_pattern = values | {"duration_filter": -1, "transactional_id_pattern": pattern}
    # While a cluster is upgraded, only some of its brokers support patterns.
    brokers = _brokers(client)
    try:
        able = [node for node in brokers if client.has(node, LIST_TRANSACTIONS_BY_PATTERN)]
    except (OSError, ConnectionFailed):
        return None
    answers = _list(client, LIST_TRANSACTIONS_BY_PATTERN, by_pattern, able)
    others = [] if only_matching else [node for node in brokers if node not in able]
    answers += _list(client, LIST_TRANSACTIONS, values, others)
    listed = []
    for answer in answers:
        if answer is None or answer.error_code != OK:
            return None
        listed += [(state.transactional_id, state.transaction_state) for state in answer.transaction_states]
    return listed if answers or (only_matching and brokers) else None


def transactional_ids(client: BrokerClient, producer_id: int) -> list[str] | None:
    """Return the transactional ids of this producer id that this user may describe. None if a broker did not answer."""
    values = {"state_filters": [], "producer_id_filters": [producer_id]}
    answers = _list(client, LIST_TRANSACTIONS, values, _brokers(client))
    listed = []
    for answer in answers:
        if answer is None or answer.error_code != OK:
            return None
        listed += [state.transactional_id for state in answer.transaction_states]
    return listed if answers else None


def _brokers(client: BrokerClient) -> list[int]:
    """Return the ids of all brokers; empty if none answers."""
    try:
        return client.brokers()
    except ConnectionFailed:
        return []


def _list(
    client: BrokerClient, request: Request[ListTransactionsResponse], values: dict[str, Any], brokers: list[int]
) -> list[ListTransactionsResponse | None]:
    return list(client.ask_each(dict.fromkeys(brokers, values), request).values())
