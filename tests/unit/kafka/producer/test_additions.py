"""What a coordinator answers to AddPartitionsToTxn, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import pytest

from spark_eos.kafka.codes import Code
from spark_eos.kafka.producer import additions as module
from spark_eos.kafka.producer.additions import Additions
from spark_eos.protocol.head import Pair

A, B = ("t", 0), ("t", 1)
Answer = dict[tuple[str, int], int] | None


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Additions, list[set[Any]]]]:
    """``told(answer, …)``: additions that get these answers, and the partitions that each request was for."""
    monkeypatch.setattr(module, "retrying", lambda seconds: repeat(None, 5))

    def make(*answers: Answer) -> tuple[Additions, list[set[Any]]]:
        left, asked = list(answers), []

        def answer(client: object, transaction: object, places: set[Any], seconds: float) -> Answer:
            asked.append(set(places))
            return left.pop(0) if left else None

        monkeypatch.setattr(module, "add_partitions_to_txn", answer)
        nobody: Any = None
        return Additions(nobody, Pair("id", 1, 0), 60.0, 1.0), asked

    return make


def test_partitions_are_added_together_and_once(told):
    """What is added already costs no request."""
    additions, asked = told({A: 0, B: 0})
    assert not additions.asked
    assert [additions.add(places) for places in ([A, B], [A], [])] == [None] * 3
    assert asked == [{A, B}]
    assert additions.asked


def test_only_those_that_are_not_added_are_asked_again(told):
    """After silence, after a coordinator that has moved, and where another partition was at fault."""
    moved, unknown = {A: Code.NOT_COORDINATOR, B: Code.NOT_COORDINATOR}, Code.UNKNOWN_TOPIC_OR_PARTITION
    additions, asked = told(None, moved, {A: 0, B: Code.CONCURRENT_TRANSACTIONS}, {B: unknown}, {B: 0})
    assert additions.add([A, B]) is None
    assert asked == [{A, B}, {A, B}, {A, B}, {B}, {B}]


def test_a_refusal_names_the_partition_that_is_at_fault(told):
    """Not that the others were not attempted."""
    refused = {A: Code.OPERATION_NOT_ATTEMPTED, B: Code.TOPIC_AUTHORIZATION_FAILED}
    additions, asked = told(refused)
    assert additions.add([A, B]).name == "TOPIC_AUTHORIZATION_FAILED"
    assert len(asked) == 1


def test_silence_ends_in_time(told):
    """With what was answered last."""
    additions, asked = told(None, {A: Code.COORDINATOR_LOAD_IN_PROGRESS})
    cause = additions.add([A])
    assert cause.code == Code.REQUEST_TIMED_OUT
    assert "COORDINATOR_LOAD_IN_PROGRESS" in cause.text
    assert len(asked) == 5
