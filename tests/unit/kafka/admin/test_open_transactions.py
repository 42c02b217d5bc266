"""What the log says about whoever holds a last stable offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.admin.open_transactions import OpenTransaction, oldest_open_transaction
from spark_eos.kafka.codes import Code
from spark_eos.kafka.net.schema import Api, Request
from spark_eos.kafka.requests.describe_producers import DESCRIBE_PRODUCERS
from spark_eos.kafka.requests.list_transactions import LIST_TRANSACTIONS
from spark_eos.kafka.transactions import NEVER_MS

PRODUCER, EPOCH, FIRST = 7, 3, 40


def test_a_transaction_that_never_expires_is_not_waited_for():
    """Its timeout of 2,147,483 s is none; who ends it is named instead."""
    expires = str(OpenTransaction("id", 7, 3, 40, 12.0, 900.0))
    never = str(OpenTransaction("id", 7, 3, 40, 12.0, NEVER_MS / 1000))
    assert "its time-out is 900 s" in expires
    assert "never expires" in never
    assert "spark-eos status" in never


class Cluster:
    """Two brokers. ``listed``: what each knows by the producer's id: names, an error code, or None for silence.
    ``described``: the state of a name; None where its coordinator is silent. ``ends``: the leader does not know the
    transaction any more when it is asked again."""

    def __init__(self, *listed: Sequence[str] | int | None, described: Any = None, ends: bool = False) -> None:
        self.listed, self.described = listed, described
        held = SimpleNamespace(producer_id=PRODUCER, producer_epoch=EPOCH, current_txn_start_offset=FIRST)
        self.looks = [[held], []] if ends else [[held], [held]]

    def leaders(self, partitions: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, int], dict[Any, int]]:
        return dict.fromkeys(partitions, 0), {}

    def brokers(self) -> list[int]:
        return list(range(len(self.listed)))

    def has(self, node: int, api: Api) -> bool:
        return True

    def coordinators(self, ids: Sequence[str], _: float) -> tuple[dict[int, list[str]], dict[str, int]]:
        return ({0: list(ids)} if ids else {}), {}

    def forget(self, ids: Sequence[str]) -> None: ...

    def ask_each(self, asked: Mapping[int, Any], request: Request[Any], _: float | None = None) -> dict[int, Any]:
        if request is DESCRIBE_PRODUCERS:
            return {node: self._lead() for node in asked}
        return {node: self._list(node) if request is LIST_TRANSACTIONS else self.described for node in asked}

    def _lead(self) -> Any:
        row = SimpleNamespace(partition_index=0, error_code=0, active_producers=self.looks.pop(0))
        return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[row])])

    def _list(self, node: int) -> Any:
        found = self.listed[node]
        if found is None or isinstance(found, int):
            return found if found is None else SimpleNamespace(error_code=found, transaction_states=())
        states = [SimpleNamespace(transactional_id=name) for name in found]
        return SimpleNamespace(error_code=0, transaction_states=states)


def described(code: int = 0, start_ms: int = 1000, producer_id: int = PRODUCER) -> Any:
    state = SimpleNamespace(
        error_code=code,
        transactional_id="id",
        producer_id=producer_id,
        transaction_start_time_ms=start_ms,
        transaction_timeout_ms=60_000,
    )
    return SimpleNamespace(transaction_states=[state])


def holder(cluster: Any) -> str:
    return str(oldest_open_transaction(cluster, "t", 0))


@pytest.mark.parametrize(
    "cluster",
    [
        Cluster([], None),
        Cluster(None, None),
        Cluster([], Code.COORDINATOR_LOAD_IN_PROGRESS),
        Cluster(["id"], []),
        Cluster(["id"], [], described=described(Code.COORDINATOR_LOAD_IN_PROGRESS, producer_id=-1)),
        Cluster(),
    ],
    ids=["one silent", "all silent", "loading", "not described", "described by none", "no brokers"],
)
def test_silence_is_not_told_as_a_hanging_transaction(cluster):
    """Whoever aborts a live transaction in one partition loses rows of it there."""
    text = holder(cluster)
    assert "does not answer" in text
    assert f"producer id {PRODUCER}" in text
    assert "hanging" not in text and "kafka-transactions" not in text


def test_what_no_coordinator_names_is_told_with_what_else_it_may_be():
    """Brokers leave out what a user may not describe, so that this alone is no reason to abort it."""
    text = holder(Cluster([], []))
    assert "hanging transaction" in text and "find-hanging" in text and "may not describe" in text


def test_what_a_coordinator_knows_is_named():
    """With its age and its timeout."""
    text = holder(Cluster([], ["id"], described=described()))
    assert "transactional id id" in text and "its time-out is 60 s" in text


@pytest.mark.parametrize(
    "cluster", [Cluster([], [], ends=True), Cluster(["id"], [], described=described(start_ms=-1), ends=True)]
)
def test_what_has_ended_meanwhile_is_not_told(cluster):
    """The coordinator was asked after the leader, and the transaction has ended in between."""
    assert oldest_open_transaction(cluster, "t", 0) is None
