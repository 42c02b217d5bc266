"""The answers of EndTxn version 5 on a real broker are those of the table in docs/design.md, row by row."""

from __future__ import annotations

import time
import uuid

import pytest

from spark_eos.errors import ProtocolStop
from spark_eos.kafka.codes import OK
from spark_eos.kafka.producer.librdkafka import LibrdkafkaProducer
from spark_eos.kafka.requests import end_txn
from tests.support.kafka_view import TIMEOUT, wait_for

LIFE_MS = 60_000


@pytest.mark.parametrize("commit", [True, False])
def test_an_open_transaction_ends_and_its_producer_is_fenced(commit, client, begin, end, view):
    """The epoch goes up with it, so that nothing can be added any more."""
    transaction = begin()
    assert end(transaction.asked, commit) == OK
    assert view.pair(transaction.pair.id) == (transaction.pair.producer_id, transaction.pair.epoch + 1)
    transaction.producer.produce(transaction.topic, b"late", partition=0)
    with pytest.raises(ProtocolStop, match=transaction.pair.id) as caught:
        transaction.producer.flush()
    assert caught.value.condition == "EOS_FENCED"
    wait_for(lambda: not view.held(transaction.topic), "the marker")
    assert view.values(transaction.topic) == ([f"{transaction.pair.id}.0"] if commit else [])


@pytest.mark.parametrize("commit", [True, False])
def test_the_same_end_again_is_done_again(commit, client, begin, end):
    """A retry after a lost answer."""
    transaction = begin()
    assert [end(transaction.asked, commit) for _ in range(3)] == [OK] * 3


def test_a_commit_after_an_abort_is_an_invalid_state(begin, end):
    """48: lost. So is the other way round: what is committed cannot be aborted."""
    aborted, committed = begin(), begin()
    end(aborted.asked, False)
    assert end(aborted.asked, True) == 48
    end(committed.asked, True)
    assert end(committed.asked, False) == 48


def test_a_commit_after_the_brokers_own_abort_is_an_invalid_state(client, begin, end, kafka, view):
    """By fencing, which ends it as the time-out does, one epoch on."""
    transaction = begin()
    again = LibrdkafkaProducer(kafka, transaction.pair.id, LIFE_MS)
    again.init()
    again.close()
    wait_for(lambda: not view.held(transaction.topic), "the abort")
    code = end(transaction.asked, True)
    assert code in (48, 90)  # 90 once the id is initialised again after the abort: it says nothing
    assert view.values(transaction.topic) == []


def test_a_commit_after_a_time_out_is_an_invalid_state(begin, end, view):
    """48: lost."""
    transaction = begin(life_ms=1000)
    wait_for(lambda: not view.open_transactions(transaction.pair.id), "the broker's time-out", 60)
    assert end(transaction.asked, True) == 48
    assert view.values(transaction.topic) == []


@pytest.mark.parametrize("commit", [True, False])
def test_an_id_that_was_initialised_later_says_nothing(commit, begin, end):
    """90 for what was committed and for what was aborted: only the data knows."""
    transaction = begin()
    end(transaction.asked, commit)
    begin(transaction.pair.id, out=transaction.topic)
    assert end(transaction.asked, True) == 90


def test_an_empty_transaction_cannot_be_committed(kafka, end):
    """48, so tasks without rows must leave none."""
    producer = LibrdkafkaProducer(kafka, f"contract-{uuid.uuid4()}", LIFE_MS)
    producer.warm_up(None)
    producer.init()
    pair = producer.identity()
    assert end((pair.id, pair.producer_id, pair.epoch), True) == 48
    producer.close()


def test_a_foreign_producer_id_says_nothing(begin, end):
    """49: as after a rotation of the producer id."""
    transaction = begin()
    name, producer_id, epoch = transaction.asked
    assert end((name, producer_id + 1_000_000, epoch), True) == 49
    assert end(transaction.asked, True) == OK


def test_a_newer_and_an_older_epoch_say_nothing(begin, end):
    """47 or 90, never an outcome of another epoch's transaction."""
    transaction = begin()
    name, producer_id, epoch = transaction.asked
    assert end((name, producer_id, epoch + 1), True) in (47, 90)
    assert end((name, producer_id, max(0, epoch - 1)), True) in (47, 90) or epoch == 0
    assert end(transaction.asked, True) == OK


def test_an_end_in_the_wake_of_a_commit_is_pending_or_done(client, begin, view):
    """51 while the markers are under way, in any number; then 0. Nothing else."""
    transaction = begin()
    seen = {end_txn.end_txns(client, [transaction.asked], True)[transaction.pair.id]}
    deadline = time.monotonic() + TIMEOUT
    while view.transactions(transaction.pair.id) != {transaction.pair.id: "CompleteCommit"}:
        seen.add(end_txn.end_txns(client, [transaction.asked], True)[transaction.pair.id])
        assert time.monotonic() < deadline
    assert seen <= {0, 51}
