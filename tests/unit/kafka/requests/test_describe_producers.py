"""What producers of a partition say of their open transactions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from spark_eos.kafka.requests.describe_producers import open_begins, open_lasts


def producer(producer_id: int, epoch: int, begin: int, last: int = 0) -> Any:
    return SimpleNamespace(
        producer_id=producer_id, producer_epoch=epoch, current_txn_start_offset=begin, last_sequence=last
    )


def test_a_transaction_may_begin_at_the_first_offset_and_one_that_is_not_open_begins_nowhere():
    """The leader says -1 of a producer that has nothing open."""
    assert open_begins([producer(7, 0, 0), producer(8, 3, -1), producer(9, 1, 40)]) == {(7, 0): 0, (9, 1): 40}


def test_a_leader_knows_the_last_record_of_what_is_open():
    """By its sequence number; -1 is a leader's word for a producer whose batches it has forgotten."""
    said = [producer(7, 0, 0, 5), producer(8, 3, -1, 6), producer(9, 1, 40, -1)]
    assert open_lasts(said) == {(7, 0): 5}
