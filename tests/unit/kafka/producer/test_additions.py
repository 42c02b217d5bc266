"""What a coordinator answers to AddPartitionsToTxn, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.codes import Code
from spark_eos.kafka.producer.additions import Additions
from spark_eos.protocol.head import Pair
from tests.support.models.coordinator import Coordinator

A, B = ("t", 0), ("t", 1)
Answer = dict[TopicPartition, int] | None


@pytest.fixture
def told(clock) -> Callable[..., tuple[Additions, Coordinator]]:
    """``told(answer, …)``: additions that get these answers, by partition, and who gives them."""

    def make(*answers: Answer) -> tuple[Additions, Coordinator]:
        client: Any = Coordinator(*map(response, answers))
        return Additions(client, Pair("id", 1, 0), 60.0, 1.0), client

    return make


def response(codes: Answer) -> SimpleNamespace | None:
    if codes is None:
        return None
    rows = [SimpleNamespace(partition_index=p, partition_error_code=code) for (_, p), code in codes.items()]
    return SimpleNamespace(results=[SimpleNamespace(name="t", partitions=rows)])


def partitions(asked: list[Any]) -> list[list[int]]:
    """Of each request."""
    return [values["topics"][0]["partitions"] for values in asked]


def test_partitions_are_added_together_and_once(told):
    """What is added already costs no request."""
    additions, client = told({A: 0, B: 0})
    assert not additions.asked
    assert [additions.add(places) for places in ([A, B], [A], [])] == [None] * 3
    assert partitions(client.asked) == [[0, 1]]
    assert additions.asked


def test_only_those_that_are_not_added_are_asked_again(told):
    """After silence, after a coordinator that has moved, and where another partition was at fault."""
    moved, unknown = {A: Code.NOT_COORDINATOR, B: Code.NOT_COORDINATOR}, Code.UNKNOWN_TOPIC_OR_PARTITION
    additions, client = told(None, moved, {A: 0, B: Code.CONCURRENT_TRANSACTIONS}, {B: unknown}, {B: 0})
    assert additions.add([A, B]) is None
    assert partitions(client.asked) == [[0, 1], [0, 1], [0, 1], [1], [1]]


def test_a_refusal_names_the_partition_that_is_at_fault(told):
    """Not that the others were not attempted."""
    refused = {A: Code.OPERATION_NOT_ATTEMPTED, B: Code.TOPIC_AUTHORIZATION_FAILED}
    additions, client = told(refused)
    assert additions.add([A, B]).name == "TOPIC_AUTHORIZATION_FAILED"
    assert len(client.asked) == 1


def test_silence_ends_in_time(told, clock):
    """With what was answered last."""
    began = clock.now
    additions, _ = told(None, {A: Code.COORDINATOR_LOAD_IN_PROGRESS})
    cause = additions.add([A])
    assert cause.code == Code.REQUEST_TIMED_OUT
    assert "COORDINATOR_LOAD_IN_PROGRESS" in cause.text
    assert 59.0 < clock.now - began <= 60.0
