"""What the sink relies on in the broker, and that our own requests say what we mean, on a real broker.

What EndTxn answers to whom is held by `test_same_scenarios` and tests/simulation/test_model_against_broker; here are
the answers that no producer of theirs provokes.
"""

from __future__ import annotations

import time
import uuid

from confluent_kafka import Producer

from spark_eos.kafka.codes import OK, Code
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests import end_txn
from spark_eos.kafka.requests.describe_producers import describe_producers
from spark_eos.kafka.requests.describe_transactions import describe_transactions
from spark_eos.kafka.requests.init_producer_id import ask_init
from spark_eos.kafka.requests.list_transactions import ids_by_state
from spark_eos.kafka.requests.txn_offset_commit import txn_offset_commit
from spark_eos.kafka.transactions import FENCING_END
from spark_eos.protocol.ports import State
from tests.support.queries.transactions import LIFE_MS, fetch
from tests.support.waiting import TIMEOUT, wait_for

# Requests


def test_a_transactions_pair_is_the_same_by_statistics_and_by_description(client, begin):
    """What the producer says of itself is what the coordinator holds. An id that nobody knows has a code, 105."""
    transaction = begin()
    states = {found.transactional_id: found for found in describe_transactions(client, ["nobody", transaction.pair.id])}
    assert {name: found.error_code for name, found in states.items()} == {"nobody": 105, transaction.pair.id: OK}
    state = states[transaction.pair.id]
    assert (state.transactional_id, state.producer_id, state.producer_epoch) == transaction.asked
    assert state.transaction_state == State.ONGOING.value
    assert state.transaction_timeout_ms == LIFE_MS
    assert [(t.topic, t.partitions) for t in state.topics] == [(transaction.topic, (0,))]
    assert abs(state.transaction_start_time_ms - time.time() * 1000) < 60_000


def test_a_producer_is_made_by_a_plain_request(client, begin, view):
    """Again for the same id: the same producer id, a later epoch. What is open under it is aborted first."""
    producer_id, epoch = wait_for(lambda: _inited(client, "init-contract"), "a producer")
    assert view.pair("init-contract") == (producer_id, epoch)
    again = wait_for(lambda: _inited(client, "init-contract"), "a producer")
    assert again[0] == producer_id
    assert again[1] > epoch
    transaction = begin()
    assert wait_for(lambda: _inited(client, transaction.pair.id), "a producer")[1] > transaction.pair.epoch
    assert end_txn.end_txns(client, [transaction.asked], True, FENCING_END)[transaction.pair.id] in (47, 90)
    assert ask_init(client, "init-contract", 10**8) == (50, -1, -1)


def _inited(client: BrokerClient, name: str) -> tuple[int, int] | None:
    """Producer id and epoch, unless the coordinator is being set up or a transition is under way."""
    error, *pair = ask_init(client, name, LIFE_MS) or (15,)
    assert error in (OK, 14, 15, 16, 51)
    return tuple(pair) if error == OK else None


def test_listing_finds_open_transactions_by_pattern(client, begin, end):
    """And no others: neither ended ones nor those of another name."""
    ours, other, ended = begin("list.a-1"), begin("listXa-2"), begin("list.a-3")
    end(ended.asked, False)

    def listed(pattern: str) -> list[str]:
        return [name for name, _ in ids_by_state(client, pattern, ["Ongoing"], only_matching=False)]

    assert listed(r"list\.a-.*") == [ours.pair.id]
    assert set(listed("list.a-.*")) == {ours.pair.id, other.pair.id}
    assert listed("nothing-.*") == []


def test_offsets_for_a_group_go_with_the_transaction(client, begin, view):
    """The group needs no call of its own to be part of it; what is asked again changes nothing."""
    transaction, group = begin(), f"group-{uuid.uuid4()}"
    offsets = {transaction.topic: {0: 7}}

    def committed() -> bool:
        error = txn_offset_commit(client, transaction.asked, group, offsets, 10, FENCING_END)
        assert error in (OK, None, 14, 15, 16, 51)
        return error == OK

    for _ in range(2):
        wait_for(committed, "the offsets")
    (state,) = describe_transactions(client, [transaction.pair.id])
    assert "__consumer_offsets" in {t.topic for t in state.topics}
    name, producer_id, epoch = transaction.asked
    assert txn_offset_commit(client, (name, producer_id, epoch - 1), group, offsets, 10, FENCING_END) in (47, 90)
    assert end_txn.end_txns(client, [transaction.asked], True, FENCING_END)[name] == OK
    wait_for(lambda: view.group(group, transaction.topic) == {(transaction.topic, 0): 7}, "the group's offsets")


def test_the_leader_tells_where_an_open_transaction_begins(client, begin, view):
    """Producer id, epoch, first offset and the number of the last record; -1 when it has ended."""
    first = begin()
    second = begin(out=first.topic, rows=3)
    mine = {p.producer_id: p for p in describe_producers(client, first.topic, 0)}
    assert mine[first.pair.producer_id].current_txn_start_offset == 0
    assert mine[second.pair.producer_id].current_txn_start_offset == 1
    assert mine[second.pair.producer_id].producer_epoch == second.pair.epoch
    assert [mine[t.pair.producer_id].last_sequence for t in (first, second)] == [0, 2]
    assert end_txn.end_txns(client, [first.asked], True, FENCING_END)[first.pair.id] == OK

    def ended() -> bool:
        now = {p.producer_id: p.current_txn_start_offset for p in describe_producers(client, first.topic, 0)}
        return now.get(first.pair.producer_id) == -1

    wait_for(ended, "the marker")
    assert not describe_producers(client, "no-such-topic", 0)


def test_fetch_tells_committed_from_aborted_and_control_batches(client, begin, end, cluster):
    """And the ends of one moment; open transactions lie beyond the stable end."""
    committed = begin(rows=2)
    end(committed.asked, True)
    aborted = begin(out=committed.topic, rows=3)
    end(aborted.asked, False)
    plain = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    plain.produce(committed.topic, b"plain", b"key", partition=0)
    assert plain.flush(TIMEOUT) == 0
    held = begin(out=committed.topic)

    def fetched():
        answer = fetch(client, committed.topic, 0, 0, 1 << 20)
        return answer if answer is not None and answer.answer.stable == 8 else None

    found = wait_for(fetched, "the stable end")
    assert (found.answer.error, found.answer.begin, found.answer.high_watermark) == (OK, 0, 9)
    told = [(b.base, b.last, b.producer_id, b.aborted, b.control) for b in found.batches]
    assert told == [
        (0, 1, committed.pair.producer_id, False, False),
        (2, 2, committed.pair.producer_id, False, True),
        (3, 5, aborted.pair.producer_id, True, False),
        (6, 6, aborted.pair.producer_id, True, True),
        (7, 7, -1, False, False),
    ]
    assert [b.epoch for b in found.batches[:1]] == [committed.pair.epoch]
    names = [(offset, value) for offset, _, value in found.rows]
    assert names == [(0, f"{committed.pair.id}.0".encode()), (1, f"{committed.pair.id}.1".encode()), (7, b"plain")]
    assert found.rows[-1][1] == b"key"
    end(held.asked, False)


def test_fetches_that_cannot_be_answered(client, topic):
    """Behind the end is an error code, an unknown topic is None; the next fetch works."""
    name = topic()
    wait_for(lambda: fetch(client, name, 0, 0, 1).answer.error == OK, "the new topic's log")
    assert fetch(client, name, 0, 7, 1).answer.error == Code.OFFSET_OUT_OF_RANGE
    assert fetch(client, "no-such-topic", 0, 0, 1) is None
    assert fetch(client, name, 0, 0, 1).answer.error == OK


# EndTxn version 5


def test_an_end_by_another_producer_or_epoch_says_nothing(begin, end):
    """49, as after a rotation of the producer id, and 47 or 90: never an outcome of another epoch's transaction."""
    transaction = begin()
    name, producer_id, epoch = transaction.asked
    assert end((name, producer_id + 1_000_000, epoch), True) == 49
    for other in {epoch + 1, max(0, epoch - 1)} - {epoch}:
        assert end((name, producer_id, other), True) in (47, 90)
    assert end(transaction.asked, True) == OK
