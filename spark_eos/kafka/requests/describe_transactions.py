"""DescribeTransactions: what coordinators hold of transactional ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.schema import INT16, INT32, INT64, STRING, Record, Request, array, record

DESCRIBE_TRANSACTIONS = Request(
    "DescribeTransactions",
    65,
    0,
    0,
    asks=record(transactional_ids=array(STRING)),
    answers=record(
        throttle_time_ms=INT32,
        transaction_states=array(
            record(
                error_code=INT16,
                transactional_id=STRING,
                transaction_state=STRING,
                transaction_timeout_ms=INT32,
                transaction_start_time_ms=INT64,
                producer_id=INT64,
                producer_epoch=INT16,
                topics=array(record(topic=STRING, partitions=array(INT32))),
            )
        ),
    ),
)
#: Seconds for which coordinators are looked for.
LOOK_UP_S = 10.0


def describe_transactions(client: BrokerClient, ids: Iterable[str]) -> list[Record]:
    """A state, with its error code, for each transactional id whose coordinator answered."""
    coordinators, _ = client.coordinators(ids, LOOK_UP_S)
    return describe_at(client, coordinators)


def describe_at(client: BrokerClient, coordinators: Mapping[int, list[str]]) -> list[Record]:
    """The same, where the coordinators of the ids are known: ``{broker: ids}``."""
    asked = {node: {"transactional_ids": names} for node, names in coordinators.items()}
    states: list[Record] = []
    for node, answer in client.ask_each(asked, DESCRIBE_TRANSACTIONS).items():
        if answer is None:
            client.forget(coordinators[node])
        else:
            states += answer.transaction_states
    return states
