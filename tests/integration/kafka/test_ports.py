"""The coordinator and the data as the protocol sees them, by its ports, on a real broker."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import TopicPartition

from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.list_transactions import LIST_TRANSACTIONS_BY_PATTERN
from spark_eos.ledger.coordinator import TransactionCoordinator
from spark_eos.ledger.lookup import RecordLookup
from spark_eos.protocol.head import Probe
from spark_eos.protocol.names import TaskId, task_name
from spark_eos.protocol.ports import State, Visibility
from tests.support.waiting import TIMEOUT, wait_for


@pytest.fixture
def query() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def coordinator(client: BrokerClient, query: str) -> TransactionCoordinator:
    return TransactionCoordinator(client, "contract.", query)


def named(query: str, **task: int) -> str:
    return task_name("contract.", query, TaskId(**{"generation": 1, "partition": 0, "slot": 0} | task))


def test_ongoing_finds_the_querys_own_tasks_of_any_generation(coordinator, query, begin, end):
    """Not the ledger's, not those of a query whose name begins alike."""
    mine = [begin(named(query, partition=1)), begin(named(query, generation=7, attempt=2, rev=1))]
    begin(f"contract.-{query}-ledger")
    begin(f"contract.-{query}x-1-0-0")
    begin(f"contractX-{query}-1-0-0")
    ended = begin(named(query, partition=2))
    end(ended.asked, True)
    assert {d.pair for d in coordinator.ongoing()} == {transaction.pair for transaction in mine}


def test_ids_that_have_had_a_transaction_are_known(coordinator, query, begin, end):
    """Of any generation and whatever became of it; those that are only taken, and of other queries, are not."""
    committed, aborted, open_one = (begin(named(query, generation=n)) for n in (1, 4, 5))
    end(committed.asked, True)
    end(aborted.asked, False)
    begin("of-another-query")
    coordinator.fence([named(query, generation=6)])

    def known():
        return {found.pair.id: found.state for found in coordinator.known() if found.state is not State.EMPTY}

    states = {committed: State.COMPLETE_COMMIT, aborted: State.COMPLETE_ABORT, open_one: State.ONGOING}
    expected = {transaction.pair.id: state for transaction, state in states.items()}
    wait_for(lambda: known() == expected, lambda: f"{known()}, expected {expected}")


def test_the_newest_generations_of_a_query(client, coordinator, query, begin, end):
    """That begun, and that committed, after those that are decided or from one on; numbers, not texts, are compared."""
    begun = {n: begin(named(query, generation=n)) for n in (2, 9, 10, 11)}
    for n in (9, 10):
        end(begun[n].asked, True)
    begin(f"contract.-{query}x-12-0-0")

    def told(*decided: int, since: int = 0) -> tuple[int, int, int]:
        known = coordinator.generations([begun[n].pair.id for n in decided], since=since)
        return known.begun, known.committed, known.decided

    if not client.has(client.brokers()[0], LIST_TRANSACTIONS_BY_PATTERN):
        assert (told(), told(2)) == ((0, 0, 0), (0, 0, 2))
        return
    wait_for(lambda: told(9) == (11, 10, 9), lambda: f"{told(9)}")
    assert (told(), told(2, 10), told(11)) == ((11, 10, 0), (11, 0, 10), (0, 0, 11))
    assert (told(since=10), told(since=11), told(since=12)) == ((11, 10, 0), (11, 0, 0), (0, 0, 0))


def test_a_probe_leads_to_the_verdict_when_the_coordinator_says_nothing(client, coordinator, begin, end):
    """None while it is open; then what readers see."""
    look = RecordLookup(client).look
    out = begin(rows=5)  # something before it, so that offsets are not all 0
    end(out.asked, True)
    for commit, found in ((True, Visibility.VISIBLE), (False, Visibility.ABORTED)):
        transaction = begin(out=out.topic, rows=3)
        probe = wait_for(lambda t=transaction: coordinator.first_record(t.pair, [(t.topic, 0)]), "the probe")
        assert look(transaction.pair, probe) is None
        end(transaction.asked, commit)
        assert wait_for(lambda t=transaction, p=probe: look(t.pair, p), "a verdict") is found


@pytest.mark.parametrize("commit", [True, False])
def test_an_abort_after_retention_is_told_as_long_as_its_marker_is_there(commit, client, coordinator, begin, end, view):
    """Retention takes the first record of an open transaction. A commit leaves no trace but rows."""
    transaction = begin(rows=3)
    probe = coordinator.first_record(transaction.pair, [(transaction.topic, 0)])
    place = TopicPartition(transaction.topic, 0, 2)

    def delete(offset: int) -> None:
        place.offset = offset
        assert view.admin.delete_records([place])[place].result(TIMEOUT).low_watermark == offset

    delete(2)
    assert RecordLookup(client).look(transaction.pair, probe) is None
    end(transaction.asked, commit)
    found = wait_for(lambda: RecordLookup(client).look(transaction.pair, probe), "a verdict")
    assert found is (Visibility.EXPIRED if commit else Visibility.ABORTED)
    delete(4)
    assert RecordLookup(client).look(transaction.pair, probe) is Visibility.EXPIRED


def test_a_place_that_is_not_in_the_log_any_more_is_gone(client, begin):
    """What was acknowledged there was truncated, or the topic was created anew; one at the end is, too."""
    transaction = begin()
    for offset in (1, 2, 99):
        assert RecordLookup(client).look(transaction.pair, Probe(transaction.topic, 0, offset)) is Visibility.EXPIRED
