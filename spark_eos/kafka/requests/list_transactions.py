"""ListTransactions: every broker tells of the transactional ids that it coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.codes import OK
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.schema import INT16, INT32, INT64, NULLABLE_STRING, STRING, Record, Request, array, record

_API = 66
_ANSWER = record(
    throttle_time_ms=INT32,
    error_code=INT16,
    unknown_state_filters=array(STRING),
    transaction_states=array(record(transactional_id=STRING, producer_id=INT64, transaction_state=STRING)),
)
_FILTERS = {"state_filters": array(STRING), "producer_id_filters": array(INT64)}

LIST_TRANSACTIONS = Request("ListTransactions", _API, 0, 0, asks=record(**_FILTERS), answers=_ANSWER)
#: Since Kafka 4.1 (KIP-1152), by a pattern of RE2.
LIST_TRANSACTIONS_BY_PATTERN = Request(
    "ListTransactions",
    _API,
    2,
    2,
    asks=record(**_FILTERS, duration_filter=INT64, transactional_id_pattern=NULLABLE_STRING),
    answers=_ANSWER,
)


def open_transactional_ids(
    client: BrokerClient, pattern: str, states: Sequence[str] = ("Ongoing",)
) -> list[str] | None:
    """Ids of transactions in these states that match the pattern (RE2), or more; None where a broker did not answer."""
    values: dict[str, Any] = {"state_filters": list(states), "producer_id_filters": []}
    request = LIST_TRANSACTIONS
    if client.speaks(_API, LIST_TRANSACTIONS_BY_PATTERN.first):
        request = LIST_TRANSACTIONS_BY_PATTERN
        values |= {"duration_filter": -1, "transactional_id_pattern": pattern}
    answers = _list(client, request, values)
    found = []
    for answer in answers:
        if answer is None or answer.error_code != OK:
            return None
        found += [state.transactional_id for state in answer.transaction_states]
    return found if answers else None


def transactional_ids(client: BrokerClient, producer_id: int) -> list[str]:
    """The transactional ids that have this producer id, by the brokers that answer."""
    answers = _list(client, LIST_TRANSACTIONS, {"state_filters": [], "producer_id_filters": [producer_id]})
    return [
        state.transactional_id
        for answer in answers
        if answer is not None and answer.error_code == OK
        for state in answer.transaction_states
    ]


def _list(client: BrokerClient, request: Request, values: dict[str, Any]) -> list[Record | None]:
    """What each broker that is in the cluster now says; nothing where no broker tells which those are."""
    try:
        brokers = client.brokers()
    except ConnectionFailed:
        return []
    return list(client.ask_each(dict.fromkeys(brokers, values), request).values())
