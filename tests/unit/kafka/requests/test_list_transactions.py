"""Who is asked for open transactions, and how, while a cluster is upgraded."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.kafka.net.schema import Api, Request
from spark_eos.kafka.requests.list_transactions import (
    LIST_TRANSACTIONS,
    LIST_TRANSACTIONS_BY_PATTERN,
    ids_by_state,
)


class Mixed:
    """Broker 0 is of Kafka 3.9, broker 1 of 4.1. ``silent``: one that does not answer."""

    def __init__(self, silent: int | None = None) -> None:
        self.silent = silent
        self.asked: dict[int, tuple[int, str | None]] = {}

    def brokers(self) -> list[int]:
        return [0, 1]

    def has(self, node: int, api: Api) -> bool:
        if node == self.silent:
            raise ConnectionRefusedError("refused")
        return node == 1 or api is LIST_TRANSACTIONS

    def ask_each(self, asked: Mapping[int, Mapping[str, Any]], request: Request) -> dict[int, Any]:
        for node, values in asked.items():
            assert self.has(node, request)
            self.asked[node] = request.last, values.get("transactional_id_pattern")
        states = [SimpleNamespace(transactional_id="a-1", transaction_state="CompleteCommit")]
        return {node: SimpleNamespace(error_code=0, transaction_states=states) for node in asked}


def test_each_broker_is_asked_in_words_that_it_knows():
    """Those before Kafka 4.1 know no patterns, and list more."""
    client: Any = Mixed()
    assert ids_by_state(client, "a-.*", ["Ongoing"], only_matching=False) == [("a-1", "CompleteCommit")] * 2
    assert client.asked == {0: (LIST_TRANSACTIONS.last, None), 1: (LIST_TRANSACTIONS_BY_PATTERN.last, "a-.*")}


def test_brokers_without_patterns_are_left_out_where_a_list_of_all_would_be_long():
    """Ids that have had a transaction within a week are very many; only of the open ones are all listed."""
    client: Any = Mixed()
    assert ids_by_state(client, "a-.*", ["CompleteCommit"], only_matching=True) == [("a-1", "CompleteCommit")]
    assert client.asked == {1: (LIST_TRANSACTIONS_BY_PATTERN.last, "a-.*")}


@pytest.mark.parametrize("silent", [0, 1])
@pytest.mark.parametrize("only_matching", [True, False])
def test_a_broker_that_does_not_say_what_it_knows_is_not_left_out(silent, only_matching):
    """It may be the one that supports patterns, and knows the id that matters."""
    client: Any = Mixed(silent)
    assert ids_by_state(client, "a-.*", ["CompleteCommit"], only_matching=only_matching) is None
