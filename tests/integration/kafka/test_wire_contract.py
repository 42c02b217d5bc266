"""What the sink relies on in the broker, and that our own requests say what we mean, on a real broker.

The answers of EndTxn version 5 are those of the table in docs/design.md, row by row.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer, TopicPartition

from spark_eos.devcluster import DevCluster
from spark_eos.errors import ProtocolStop
from spark_eos.kafka.codes import OK, Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.ports.coordinator import TransactionCoordinator
from spark_eos.kafka.ports.lookup import RecordLookup
from spark_eos.kafka.producer.librdkafka import LibrdkafkaProducer
from spark_eos.kafka.records.batches import RecordBatch, walk_batches
from spark_eos.kafka.records.rows import read_rows
from spark_eos.kafka.requests import end_txn
from spark_eos.kafka.requests.describe_producers import describe_producers
from spark_eos.kafka.requests.describe_transactions import describe_transactions
from spark_eos.kafka.requests.fetch import FetchResponse, fetch_once
from spark_eos.kafka.requests.init_producer_id import ask_init
from spark_eos.kafka.requests.list_transactions import open_transactional_ids
from spark_eos.kafka.requests.txn_offset_commit import txn_offset_commit
from spark_eos.protocol.head import Pair, Probe
from spark_eos.protocol.names import TaskId, task_name
from spark_eos.protocol.ports import EndTxnAnswer, Found, State
from tests.support.kafka_view import TIMEOUT, wait_for

LIFE_MS = 60_000


@pytest.fixture(scope="module")
def kafka(cluster: DevCluster) -> KafkaProperties:
    return KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers})


@pytest.fixture(scope="module")
def client(kafka: KafkaProperties) -> BrokerClient:
    return BrokerClient(kafka)


class Transaction:
    """A transaction of a producer of its own, opened like a task's: its pair by the producer's own word."""

    def __init__(self, kafka: KafkaProperties, topic: str, name: str, rows: int = 1, life_ms: int = LIFE_MS) -> None:
        self.topic = topic
        self.producer = LibrdkafkaProducer(kafka, name, life_ms)
        self.producer.warm_up(topic)
        self.producer.init()
        self.producer.begin()
        for i in range(rows):
            self.producer.produce(topic, f"{name}.{i}", partition=0)
        self.producer.flush()
        self.pair = self.producer.identity()

    @property
    def asked(self) -> tuple[str, int, int]:
        return self.pair.id, self.pair.producer_id, self.pair.epoch


@pytest.fixture
def begin(kafka: KafkaProperties, topic: Callable[..., str]) -> Iterator[Callable[..., Transaction]]:
    """``begin()``: an open transaction, by default under a name and in a topic of its own."""
    opened: list[Transaction] = []

    def make(name: str | None = None, out: str | None = None, **more: int) -> Transaction:
        opened.append(Transaction(kafka, out or topic(), name or f"contract-{uuid.uuid4()}", **more))
        return opened[-1]

    yield make
    for transaction in opened:
        transaction.producer.close()


@pytest.fixture
def end(client: BrokerClient) -> Callable[..., int]:
    """EndTxn; the first answer that is an outcome."""

    def send(asked: tuple[str, int, int], commit: bool) -> int:
        def ask() -> tuple[int] | None:
            code = end_txn.end_txns(client, [asked], commit)[asked[0]]
            return None if code in (None, 51) else (code,)

        return wait_for(ask, f"an outcome of {asked}")[0]

    return send


@dataclass(frozen=True)
class Fetched:
    """A Fetch response, its batches, and the rows that a read_committed reader sees."""

    answer: FetchResponse
    batches: list[RecordBatch]
    rows: list[tuple[int, bytes | None, bytes | None]]


def fetch(client: BrokerClient, topic: str, partition: int, offset: int, max_bytes: int) -> Fetched | None:
    found = fetch_once(client.properties, topic, partition, offset, max_bytes)
    if found is None:
        return None
    answer, data = found
    batches = list(walk_batches(data, answer.size, answer.aborted))
    return Fetched(answer, batches, [row for batch in batches if batch.visible for row in read_rows(data, batch)])


# Requests


def test_a_transactions_pair_is_the_same_by_statistics_and_by_description(client, begin):
    """What the producer says of itself is what the coordinator holds."""
    transaction = begin()
    (state,) = describe_transactions(client, [transaction.pair.id])
    assert state.error_code == OK
    assert (state.transactional_id, state.producer_id, state.producer_epoch) == transaction.asked
    assert state.transaction_state == State.ONGOING.value
    assert state.transaction_timeout_ms == LIFE_MS
    assert [(t.topic, t.partitions) for t in state.topics] == [(transaction.topic, [0])]
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
    assert end_txn.end_txns(client, [transaction.asked], commit=True)[transaction.pair.id] in (47, 90)
    assert ask_init(client, "init-contract", 10**8) == (50, -1, -1)


def _inited(client: BrokerClient, name: str) -> tuple[int, int] | None:
    """Producer id and epoch, unless the coordinator is being set up or a transition is under way."""
    error, *pair = ask_init(client, name, LIFE_MS) or (15,)
    assert error in (OK, 14, 15, 16, 51)
    return tuple(pair) if error == OK else None


def test_ids_that_nobody_knows_are_told_apart(client, begin):
    """Error 105, not an exception; known ones beside it are described."""
    known = begin().pair.id
    states = describe_transactions(client, ["nobody-knows-this-id", known])
    assert {state.transactional_id: state.error_code for state in states} == {"nobody-knows-this-id": 105, known: OK}


def test_every_state_has_a_name_in_the_protocol(client, begin, end):
    """A state that is not in the enumeration would raise in the middle of a commit."""
    transaction = begin()
    assert end(transaction.asked, True) == OK
    (state,) = describe_transactions(client, [transaction.pair.id])
    assert State(state.transaction_state) in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


def test_listing_finds_open_transactions_by_pattern(client, begin, end):
    """And no others: neither ended ones nor those of another name."""
    ours, other, ended = begin("list.a-1"), begin("listXa-2"), begin("list.a-3")
    end(ended.asked, False)
    assert open_transactional_ids(client, r"list\.a-.*") == [ours.pair.id]
    assert set(open_transactional_ids(client, "list.a-.*")) == {ours.pair.id, other.pair.id}
    assert open_transactional_ids(client, "nothing-.*") == []


def test_many_requests_at_once(client, begin, view):
    """Of each there is an answer; those of transactional ids that nobody knows are errors."""
    ids = [f"nobody-{i}" for i in range(300)]
    assert {s.transactional_id for s in describe_transactions(client, ids)} == set(ids)
    answers = end_txn.end_txns(client, [(name, 1, 1) for name in ids], True)
    assert answers.keys() == set(ids)
    assert OK not in answers.values()


def test_offsets_for_a_group_go_with_the_transaction(client, begin, view):
    """The group needs no call of its own to be part of it; what is asked again changes nothing."""
    transaction, group = begin(), f"group-{uuid.uuid4()}"
    offsets = {transaction.topic: {0: 7}}

    def committed() -> bool:
        error = txn_offset_commit(client, transaction.asked, group, offsets, 10)
        assert error in (OK, None, 14, 15, 16, 51)
        return error == OK

    for _ in range(2):
        wait_for(committed, "the offsets")
    (state,) = describe_transactions(client, [transaction.pair.id])
    assert "__consumer_offsets" in {t.topic for t in state.topics}
    name, producer_id, epoch = transaction.asked
    assert txn_offset_commit(client, (name, producer_id, epoch - 1), group, offsets, 10) in (47, 90)
    assert end_txn.end_txns(client, [transaction.asked], commit=True)[name] == OK
    wait_for(lambda: view.group(group, transaction.topic) == {(transaction.topic, 0): 7}, "the group's offsets")


def test_the_leader_tells_where_an_open_transaction_begins(client, begin, view):
    """Producer id, epoch and first offset; -1 when it has ended."""
    first = begin()
    second = begin(out=first.topic, rows=3)
    mine = {p.producer_id: p for p in describe_producers(client, first.topic, 0)}
    assert mine[first.pair.producer_id].current_txn_start_offset == 0
    assert mine[second.pair.producer_id].current_txn_start_offset == 1
    assert mine[second.pair.producer_id].producer_epoch == second.pair.epoch
    assert end_txn.end_txns(client, [first.asked], True)[first.pair.id] == OK

    def ended() -> bool:
        now = {p.producer_id: p.current_txn_start_offset for p in describe_producers(client, first.topic, 0)}
        return now.get(first.pair.producer_id) == -1

    wait_for(ended, "the marker")
    assert describe_producers(client, "no-such-topic", 0) == []


def test_the_cluster_tells_its_transaction_version(client):
    """Finalized, not supported."""
    assert client.feature("transaction.version") == 2


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


def test_a_fetch_may_begin_inside_an_aborted_transaction(client, begin, end):
    """The broker lists a transaction that was aborted even when the fetch begins after its first record."""
    aborted = begin(rows=4)
    end(aborted.asked, False)
    wait_for(lambda: fetch(client, aborted.topic, 0, 0, 1).answer.stable == 5, "the marker")
    inside = fetch(client, aborted.topic, 0, 2, 1)
    assert inside.batches[0].aborted
    assert inside.rows == []


def test_fetches_that_cannot_be_answered(client, topic):
    """Behind the end is an error code, an unknown topic is None; the next fetch works."""
    name = topic()
    wait_for(lambda: fetch(client, name, 0, 0, 1).answer.error == OK, "the new topic's log")
    assert fetch(client, name, 0, 7, 1).answer.error == Code.OFFSET_OUT_OF_RANGE
    assert fetch(client, "no-such-topic", 0, 0, 1) is None
    assert fetch(client, name, 0, 0, 1).answer.error == OK


# EndTxn version 5, row by row


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


# The coordinator and the data, as the protocol sees them


@pytest.fixture
def coordinator(client: BrokerClient) -> TransactionCoordinator:
    return TransactionCoordinator(client, "contract.", str(uuid.uuid4()))


def lookup(client: BrokerClient) -> RecordLookup:
    return RecordLookup(client.properties)


def named(coordinator: TransactionCoordinator, **task: int) -> str:
    return task_name("contract.", coordinator._query, TaskId(**{"generation": 1, "partition": 0, "slot": 0} | task))


def test_ongoing_finds_the_querys_own_tasks_of_any_generation(coordinator, begin, end):
    """Not the ledger's, not those of a query whose name begins alike."""
    mine = [begin(named(coordinator, partition=1)), begin(named(coordinator, generation=7, attempt=2, rev=1))]
    begin(f"contract.-{coordinator._query}-ledger")
    begin(f"contract.-{coordinator._query}x-1-0-0")
    begin(f"contractX-{coordinator._query}-1-0-0")
    ended = begin(named(coordinator, partition=2))
    end(ended.asked, True)
    assert {d.pair for d in coordinator.ongoing()} == {transaction.pair for transaction in mine}


def test_ends_of_several_are_answered_one_by_one(coordinator, begin, end):
    """A lost one does not hide what became of the others."""
    done, lost, silent = (begin(named(coordinator, partition=p)) for p in range(3))
    end(lost.asked, False)
    end(silent.asked, True)
    begin(silent.pair.id, out=silent.topic)
    pairs = [done.pair, lost.pair, silent.pair]

    def answered():
        answers = coordinator.end(pairs, commit=True)
        return None if EndTxnAnswer.PENDING in answers.values() else answers

    assert wait_for(answered, "answers") == {
        done.pair: EndTxnAnswer.DONE,
        lost.pair: EndTxnAnswer.SAYS_NOTHING,
        silent.pair: EndTxnAnswer.SAYS_NOTHING,
    }


def test_a_probe_leads_to_the_verdict_when_the_coordinator_says_nothing(client, coordinator, begin, end):
    """None while it is open; then what readers see."""
    look = lookup(client).look
    out = begin(rows=5)  # something before it, so that offsets are not all 0
    end(out.asked, True)
    for commit, found in ((True, Found.THERE), (False, Found.MISSING)):
        transaction = begin(out=out.topic, rows=3)
        probe = wait_for(lambda t=transaction: coordinator.first_record(t.pair, [(t.topic, 0)]), "the probe")
        assert look(transaction.pair, probe) is None
        end(transaction.asked, commit)
        assert wait_for(lambda t=transaction, p=probe: look(t.pair, p), "a verdict") is found


def test_a_probe_of_somebody_elses_record_is_gone(client, coordinator, begin, end):
    """As after the topic was created anew: never "there"."""
    transaction = begin(rows=2)
    probe = coordinator.first_record(transaction.pair, [(transaction.topic, 0)])
    end(transaction.asked, True)
    other = Pair("other", transaction.pair.producer_id, transaction.pair.epoch + 1)
    assert wait_for(lambda: lookup(client).look(other, probe), "an answer") is Found.GONE


def test_a_probe_that_retention_took_is_gone(client, coordinator, begin, end, view):
    """Neither there nor missing."""
    transaction = begin(rows=2)
    probe = coordinator.first_record(transaction.pair, [(transaction.topic, 0)])
    end(transaction.asked, True)
    wait_for(lambda: not view.held(transaction.topic), "the marker")
    place = TopicPartition(transaction.topic, 0, 3)
    assert view.admin.delete_records([place])[TopicPartition(transaction.topic, 0)].result(TIMEOUT).low_watermark == 3
    assert lookup(client).look(transaction.pair, probe) is Found.GONE


def test_a_place_that_was_never_written_is_no_verdict(client, begin):
    """The stable end is not past it."""
    transaction = begin()
    assert lookup(client).look(transaction.pair, Probe(transaction.topic, 0, 99)) is None


def test_a_transaction_that_another_holds_is_not_ours(coordinator, begin):
    """The first record is looked for by producer id and epoch."""
    transaction = begin()
    other = Pair(transaction.pair.id, transaction.pair.producer_id, transaction.pair.epoch + 1)
    assert coordinator.first_record(other, [(transaction.topic, 0)]) is None


def test_list_offsets_is_what_the_wire_says(client, begin, end, view):
    """The stable end by a client of another make."""
    transaction = begin(rows=3)
    answer = fetch(client, transaction.topic, 0, 0, 1)
    assert (answer.answer.stable, answer.answer.high_watermark) == (0, 3)
    assert view.held(transaction.topic) == {(transaction.topic, 0): (0, 3)}
